"""Faster or not: in turns, and with an interval. The clock here is as exact as it is false."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from mmctl.exporters.accuracy.speed import (
    PAIRS,
    Speed,
    Turn,
    batch_sizes,
    evidence_of_speed,
    measure_speed,
    speed_of,
)
from mmctl.exporters.traced import Runner
from mmctl.tensors import Array


class Clock:
    """Time passes only when a runner says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls: list[str] = []

    def __call__(self) -> Turn:
        return Turn(self.seconds, 2 * self.seconds)

    def runner(self, name: str, seconds_a_row: float) -> Runner:
        def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
            self.seconds += seconds_a_row * len(arrays["x"])
            self.calls.append(name)
            return []

        return run


def batch(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.zeros((rows, 1))}


def measured(old: float, new: float) -> tuple[list[Speed], Clock]:
    clock = Clock()
    runners = clock.runner("old", old), clock.runner("new", new)
    return measure_speed(*runners, {1: batch(1), 8: batch(8)}, clock), clock


def test_the_ratio_is_that_of_cpu_time() -> None:
    speeds, _ = measured(0.010, 0.004)
    assert [speed.batch for speed in speeds] == [1, 8]
    assert speeds[0].cpu.value == pytest.approx(0.4)
    assert (speeds[0].cpu.low, speeds[0].cpu.high) == pytest.approx((0.4, 0.4))
    assert all(speed.is_faster for speed in speeds)
    assert speeds[0].text() == "it takes 0.40 of FP32's CPU time at batch 1 (95 %: 0.40 to 0.40)"


def test_both_take_turns_and_neither_is_always_first() -> None:
    _, clock = measured(0.010, 0.010)
    turns = clock.calls[5 : 5 + 2 * PAIRS]
    assert turns[:4] == ["old", "new", "new", "old"]
    assert turns.count("old") == turns.count("new") == PAIRS >= 10


def test_short_calls_are_repeated_until_a_clock_can_see_them() -> None:
    _, clock = measured(0.0001, 0.0001)
    assert len(clock.calls) > 20 * PAIRS


def test_long_calls_are_not_made_in_large_batches() -> None:
    speeds, _ = measured(0.4, 0.1)
    assert [speed.batch for speed in speeds] == [1]


@pytest.mark.parametrize(
    ("ratio", "is_faster"), [(0.5, True), (0.95, True), (0.97, False), (1.4, False)]
)
def test_hardly_faster_is_not_faster(ratio: float, is_faster: bool) -> None:
    pairs = [(Turn(1.0, 1.0), Turn(ratio, ratio))] * PAIRS
    assert speed_of(1, pairs).is_faster is is_faster


def test_one_outlier_does_not_decide() -> None:
    pairs = [(Turn(1.0, 1.0), Turn(0.5, 0.5))] * PAIRS
    found = speed_of(1, [*pairs, (Turn(1.0, 1.0), Turn(90.0, 90.0))])
    assert found.cpu.value == 0.5


@pytest.mark.parametrize(("most", "sizes"), [(0, (0,)), (1, (1,)), (4, (1, 4)), (64, (1, 8))])
def test_the_batches_to_measure(most: int, sizes: tuple[int, ...]) -> None:
    assert batch_sizes(most) == sizes


def noisy(*ratios: float) -> Speed:
    return speed_of(1, [(Turn(1.0, 1.0), Turn(ratio, ratio)) for ratio in ratios])


@pytest.mark.parametrize(
    ("speed", "forced", "marks"),
    [
        pytest.param(noisy(*[0.5] * 15), False, set(), id="faster"),
        pytest.param(noisy(*[0.5] * 15), True, set(), id="faster, the flag was not needed"),
        pytest.param(noisy(*[1.2] * 15), True, {"forced", "warning"}, id="forced"),
        pytest.param(noisy(*[0.5, 1.5, 0.9] * 5), False, {"warning"}, id="too noisy to tell"),
    ],
)
def test_the_evidence_says_what_is_to_be_known(speed: Speed, forced: bool, marks: set[str]) -> None:
    evidence = evidence_of_speed([speed], forced=forced)
    assert evidence.keys() - {"gate", "hardware", "limit", "ratios"} == marks
    assert evidence["hardware"] == "cpu"
