"""The cost of a batch from what a server has counted."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.client.statistics import ModelStatistics
from mmctl.loadtest.fit import Memory, Point, fit_all, fit_cost, fit_memory
from mmctl.loadtest.simulate import Cost, Setting
from mmctl.trials.tune import Profile, fits_memory

MS = 1_000_000


def seconds(most: float) -> st.SearchStrategy[float]:
    """None, or at least a nanosecond: Triton counts no less."""
    return st.just(0.0) | st.floats(1e-9, most)


@given(seconds(0.1), seconds(0.01), st.lists(st.integers(1, 64), min_size=2, unique=True))
def test_a_line_is_found_again(fixed: float, per_row: float, sizes: list[int]) -> None:
    cost = Cost(fixed, per_row)
    fit = fit_cost([Point(rows, cost.of(rows), 10) for rows in sizes])
    assert fit.cost.fixed == pytest.approx(fixed, abs=1e-9)
    assert fit.cost.per_row == pytest.approx(per_row, abs=1e-9)
    assert fit.error == pytest.approx(0, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 1), st.integers(1, 99)), min_size=1))
def test_neither_part_is_negative(points: list[tuple[int, float, int]]) -> None:
    fit = fit_cost([Point(*point) for point in points])
    assert fit.cost.fixed >= 0
    assert fit.cost.per_row >= 0


def test_one_size_alone_tells_what_that_size_takes() -> None:
    assert fit_cost([Point(4, 0.02, 9)]).cost == Cost(0.02)


def test_what_was_seen_once_says_little() -> None:
    points = [Point(1, 0.01, 100), Point(2, 0.01, 100), Point(8, 5.0, 1)]
    assert fit_cost(points).cost.per_row == pytest.approx(0)
    assert fit_cost([Point(8, 5.0, 1)]).cost == Cost(5.0)


def test_the_error_is_the_share_that_is_missed() -> None:
    fit = fit_cost([Point(1, 0.01, 10), Point(2, 0.02, 10), Point(3, 0.01, 10)])
    assert fit.error == pytest.approx(1 / 3, abs=0.05)
    assert fit.sizes == (1, 2, 3)


def test_versions_of_a_model_count_together_and_idle_ones_not_at_all() -> None:
    one = ModelStatistics("a", "1", batches={1: 10}, batch_ns={1: 10 * 10 * MS})
    two = ModelStatistics("a", "2", batches={4: 10}, batch_ns={4: 10 * 16 * MS})
    found = fit_all([one, two, ModelStatistics("idle", "1")])
    assert set(found) == {"a"}
    assert found["a"].cost.fixed == pytest.approx(0.008)
    assert found["a"].cost.per_row == pytest.approx(0.002)


def test_without_a_batch_there_is_no_cost() -> None:
    with pytest.raises(ValueError, match="no batch was measured"):
        fit_cost([])


def most_rows(memory: Memory, available: float, instances: int) -> int:
    """The largest batch up to 2**21 with which `mmctl tune` thinks that all instances fit."""
    profile = Profile((), {}, {"a": memory}, available, 0.0, 0.0)

    def is_too_large(rows: int) -> bool:
        return not fits_memory(profile, {"a": Setting(rows, instances)})

    return bisect.bisect_left(range(1, 1 << 21), True, key=is_too_large)


def test_memory_bounds_the_batch() -> None:
    """(memory - weights) / what a row takes; shared by the instances."""
    memory = fit_memory(400, {1: 410, 8: 480})
    assert memory == Memory(400, 10)
    assert most_rows(memory, 1000, 1) == 60
    assert most_rows(memory, 1000, 2) == 10
    assert most_rows(memory, 300, 1) == 0
    assert most_rows(fit_memory(400, {4: 400}), 500, 1) > 1e6
    assert fit_memory(400, {}) == Memory(400, 0)
