"""Which variant is recommended: never one that is not proven, or not surely better."""

from __future__ import annotations

import pytest
from compare_rows import accuracy, measured

from mmctl.trials.compare import Objective
from mmctl.trials.compare.objective import recommend
from mmctl.trials.compare.table import Measured, rows_of

FP32 = measured("fp32", 10)
SMALL = 25_000_000


def chosen(others: list[Measured], objective: Objective = Objective.LATENCY) -> str:
    return recommend(rows_of([FP32, *others]), objective).name


FASTEST = measured("int8-dynamic", 4, best_ms=40)
FULLEST = measured("int8-static", 5, best_ms=10, size=30_000_000)
SMALLEST = measured("int8", 8, best_ms=30, size=SMALL)


@pytest.mark.parametrize(
    ("objective", "name"),
    [
        pytest.param(Objective.LATENCY, "int8-dynamic", id="latency at batch 1"),
        pytest.param(Objective.THROUGHPUT, "int8-static", id="throughput at the best batch"),
        pytest.param(Objective.SIZE, "int8", id="size of the file"),
    ],
)
def test_the_objective_decides(objective: Objective, name: str) -> None:
    assert chosen([FASTEST, FULLEST, SMALLEST], objective) == name


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(
            measured("int8", 1, size=SMALL, judged=accuracy(0.36, within=False)),
            "cosine of vector 0.36 (95 %: 0.359 to 0.361), which is to be at least 0.99",
            id="one that answers otherwise",
        ),
        pytest.param(
            measured("fp16", 1, size=SMALL),
            "processors compute in FP32: a FP16 file is only converted back",
            id="FP16 on a CPU, however fast it looks",
        ),
        pytest.param(
            measured("int4", 1, size=SMALL, experimental=True), "an experiment", id="an experiment"
        ),
    ],
)
def test_what_may_not_be_served_is_passed_over_with_the_reason(
    objective: Objective, other: Measured, why: str
) -> None:
    found = recommend(rows_of([FP32, other]), objective)
    assert found.name == "fp32"
    assert found.passed_over == {other.variant.title: why}
    assert found.why == f"no variant that may be served is better for {objective}"


def test_a_variant_that_may_be_no_faster_is_not_recommended_for_latency() -> None:
    assert chosen([measured("int8", 8, noise=0.4)]) == "fp32"
    assert chosen([measured("int8", 8)]) == "int8"


def test_the_reason_says_the_gain_and_what_it_costs() -> None:
    found = recommend(rows_of([FP32, measured("int8", 4)]), Objective.LATENCY)
    assert found.why == (
        "0.40 of FP32's latency at batch 1; cosine of vector 0.995 (95 %: 0.994 to 0.996), "
        "which is to be at least 0.99"
    )


def test_one_that_is_only_second_best_is_passed_over_for_its_number() -> None:
    found = recommend(rows_of([FP32, FASTEST, FULLEST]), Objective.LATENCY)
    assert found.passed_over == {"int8-static": "0.50 of FP32's latency at batch 1"}
