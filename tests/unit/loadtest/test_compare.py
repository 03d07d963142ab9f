"""Two runs beside each other."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mmctl.loadtest.compare import Difference, Verdict, differences
from mmctl.loadtest.record import Recorder, Slice


def run(
    seed: int, ms: float, *, seconds: float = 20, rate: int = 100, failing: float = 0
) -> list[Slice]:
    """Requests that take `ms` on average; each slice has its own mood, as real ones have."""
    recorder, rng = Recorder(seconds), random.Random(seed)
    moods = [rng.uniform(0.8, 1.2) for _ in recorder.slices]
    for n in range(int(seconds * rate)):
        due = n / rate
        mood = moods[min(len(moods) - 1, int(due / seconds * len(moods)))]
        recorder.sent(due, due)
        if rng.random() < failing:
            recorder.failed(due, "error")
        else:
            recorder.answered(due, due + ms * mood * rng.uniform(0.5, 1.5) / 1000)
    return recorder.slices


def told(before: list[Slice], after: list[Slice]) -> dict[str, Difference]:
    return {difference.measure: difference for difference in differences(before, after)}


def test_a_slower_run_is_worse_and_a_faster_one_better() -> None:
    slow, fast = run(1, 20), run(2, 10)
    assert told(fast, slow)["p99_ms"].verdict is Verdict.WORSE
    assert told(slow, fast)["p50_ms"].verdict is Verdict.BETTER
    assert told(slow, fast)["p50_ms"].ratio == pytest.approx(0.5, rel=0.1)


def test_more_throughput_is_better_and_more_failures_are_worse() -> None:
    less, more = run(1, 10, rate=50), run(2, 10, rate=100)
    assert told(less, more)["throughput"].verdict is Verdict.BETTER
    assert told(more, less)["throughput"].verdict is Verdict.WORSE
    assert told(run(1, 10, failing=0.02), run(2, 10, failing=0.2))["failed"].verdict is (
        Verdict.WORSE
    )


def test_equal_runs_are_told_apart_in_about_one_case_of_twenty() -> None:
    """The interval is one of 95 %."""
    found = [told(run(n, 10), run(1000 + n, 10))["p50_ms"].verdict for n in range(30)]
    assert found.count(Verdict.SAME) >= 24


def test_the_interval_holds_the_real_ratio_most_times() -> None:
    held = 0
    for n in range(20):
        difference = told(run(n, 10), run(500 + n, 11))["p50_ms"]
        assert difference.low is not None
        assert difference.high is not None
        held += difference.low <= 1.1 <= difference.high
    assert held >= 16


def test_levels_of_a_run_are_no_uncertainty_between_two_runs_of_the_same_profile() -> None:
    """1 and 8 callers have different throughputs; both runs have half of each."""

    def two_levels(seed: int, ms: float) -> list[Slice]:
        return [*run(seed, ms, rate=20), *run(seed + 50, ms, rate=160)]

    def throughput(alike: bool) -> tuple[float, float]:
        found = differences(two_levels(1, 10), two_levels(2, 10), alike=alike)
        [row] = [row for row in found if row.measure == "throughput"]
        assert row.low is not None
        assert row.high is not None
        return row.low, row.high

    low, high = throughput(alike=True)
    assert low == pytest.approx(high, abs=0.01)
    low, high = throughput(alike=False)
    assert high - low > 0.2
    slower = differences(two_levels(1, 10), two_levels(2, 12), alike=True)
    assert {row.measure: row.verdict for row in slower}["p50_ms"] is Verdict.WORSE


Runs = Callable[[], list[Slice]]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (lambda: run(1, 10, seconds=1), lambda: run(2, 30, seconds=20), Verdict.UNKNOWN),
        (lambda: [], lambda: run(2, 30), Verdict.UNKNOWN),
        (lambda: run(1, 10, failing=1), lambda: run(2, 30), Verdict.UNKNOWN),
    ],
)
def test_too_little_data_is_said_to_be_that(before: Runs, after: Runs, verdict: Verdict) -> None:
    assert told(before(), after())["p50_ms"].verdict is verdict


def test_no_failures_on_either_side_are_no_difference() -> None:
    assert told(run(1, 10), run(2, 10))["failed"].verdict is Verdict.SAME
