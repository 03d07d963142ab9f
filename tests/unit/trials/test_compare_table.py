"""Measurements become rows: absolutes with intervals, and ratios to FP32 beside them."""

from __future__ import annotations

import pytest
from compare_rows import comparison, measured

from mmctl.trials.compare import Objective
from mmctl.trials.compare.objective import recommend
from mmctl.trials.compare.stats import Estimate
from mmctl.trials.compare.table import Turn, best_batch, rows_of, timing
from mmctl.trials.compare.text import facts_of, lines_of, values_of


def test_fp32_is_one_in_every_ratio() -> None:
    (row,) = rows_of([measured("fp32", 10)])
    one = Estimate(1, 1, 1)
    ratios = row.ratios
    assert (ratios.size, ratios.memory) == (1, 1)
    assert (ratios.load, ratios.latency, ratios.throughput, ratios.cpu) == (one, one, one, one)


def test_ratios_are_to_fp32_of_the_same_run() -> None:
    _, row = rows_of([measured("fp32", 10), measured("int8", 4, size=25_000_000)])
    assert (row.ratios.size, row.ratios.memory) == (0.25, 0.25)
    assert row.ratios.latency.median == pytest.approx(0.4)
    assert row.ratios.cpu.median == pytest.approx(0.4)
    assert row.ratios.throughput.median == pytest.approx(2.5)


def test_throughput_is_compared_at_the_batch_that_is_best_for_each() -> None:
    rows = rows_of(
        [measured("fp32", 10, best_batch=8, best_ms=80), measured("int8", 10, best_batch=32)]
    )
    assert [row.best.rows_s.median for row in rows] == pytest.approx([100, 800])
    assert rows[1].ratios.throughput.median == pytest.approx(8)


def test_a_request_takes_the_cpu_of_its_turn_divided_by_the_requests() -> None:
    found = timing(4, [Turn((10.0, 10.0), 30.0)] * 6)
    assert (found.cpu_ms, found.requests) == (Estimate(15, 15, 15), 12)


def test_the_99th_percentile_is_over_all_requests_of_all_turns() -> None:
    turns = [Turn((1.0,) * 10, 10.0) for _ in range(9)] + [Turn((1.0,) * 8 + (5.0, 9.0), 22.0)]
    assert timing(1, turns).p99_ms == 5.0


def test_without_a_batch_axis_a_request_is_one_row() -> None:
    assert timing(0, [Turn((10.0,), 10.0)] * 6).rows_s.median == pytest.approx(100)


@pytest.mark.parametrize(
    ("rows_s", "best"),
    [
        pytest.param({1: 10, 2: 30, 4: 20}, 2, id="the largest throughput"),
        pytest.param({4: 30, 2: 30, 1: 10}, 2, id="of equals the smaller batch"),
    ],
)
def test_the_best_batch_is_that_of_the_largest_throughput(
    rows_s: dict[int, float], best: int
) -> None:
    assert best_batch(rows_s) == best


def test_the_table_has_a_line_for_every_quantity_and_a_cell_for_every_variant() -> None:
    lines = lines_of(rows_of([measured("fp32", 10), measured("int8", 4)]))
    assert [line.title for line in lines] == [
        "file size",
        "load time",
        "p50 at batch 1",
        "p99 at batch 1",
        "CPU at batch 1",
        "best batch",
        "p50 at best",
        "p99 at best",
        "CPU at best",
        "throughput",
        "peak memory",
        "cosine of vector",
    ]
    assert {len(line.cells) for line in lines} == {2}
    assert [line.title for line in lines if not line.less] == ["throughput", "cosine of vector"]


def test_a_model_without_a_batch_axis_has_no_lines_about_batches() -> None:
    lines = lines_of(rows_of([measured("fp32", 10, best_batch=0, best_ms=10)]))
    assert not [line.title for line in lines if "batch" in line.title or "best" in line.title]


def test_the_work_of_a_request_is_twice_its_multiplications() -> None:
    facts = facts_of(comparison([measured("fp32", 10)]))
    assert facts["work"] == ("2 GFLOPs each request (2 x MAC, batch 1, mostly MatMul): light")


def test_json_has_all_that_the_table_has() -> None:
    made = comparison([measured("fp32", 10), measured("int8", 4)], "a note")
    values = values_of(made, recommend(made.rows, Objective.LATENCY), Objective.LATENCY)
    assert (values["model"], values["objective"], values["notes"]) == ("net", "latency", ["a note"])
    assert values["work"] == {
        "gflops": 2.0,
        "class": "light",
        "macs": {"MatMul": 900_000_000, "Conv": 100_000_000},
    }
    _, int8 = values["variants"]  # type: ignore[misc]
    assert int8["at_one"]["p50_ms"] == {"median": 4, "low": 4, "high": 4}
    assert int8["ratios"]["latency"]["median"] == pytest.approx(0.4)
    assert [one["value"] for one in int8["accuracy"]] == [0.995]
