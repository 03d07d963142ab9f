"""Medians, their intervals, and ratios of what was measured in turn."""

from __future__ import annotations

import numpy as np
import pytest

from mmctl.trials.compare.stats import Estimate, estimate, percentile, ratios


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        pytest.param(1, 0, 0, id="one value has itself only"),
        pytest.param(5, 0, 4, id="five are too few: the whole range"),
        pytest.param(6, 0, 5, id="six: the range holds the median in 97 of 100"),
        pytest.param(9, 1, 7, id="nine: one off at each end"),
        pytest.param(10, 1, 8, id="ten"),
        pytest.param(20, 5, 14, id="twenty"),
    ],
)
def test_the_interval_is_between_values_that_were_measured(count: int, low: int, high: int) -> None:
    found = estimate([float(value) for value in reversed(range(count))])
    assert found == Estimate((count - 1) / 2, low, high)


def test_the_interval_holds_the_true_median_at_least_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    found = [estimate(draw.exponential(size=10).tolist()) for _ in range(2000)]
    assert np.mean([one.low <= np.log(2) <= one.high for one in found]) >= 0.95


def test_a_ratio_does_not_see_what_slows_both_sides_of_a_pair() -> None:
    base = [10.0, 10.0, 50.0, 10.0, 30.0, 10.0, 10.0]
    assert ratios([value / 2 for value in base], base) == Estimate(0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        pytest.param(1, 1, id="of one value it is that"),
        pytest.param(10, 10, id="of few it is the largest"),
        pytest.param(100, 99, id="of a hundred the last but one"),
        pytest.param(1000, 990, id="of a thousand ten are larger"),
    ],
)
def test_the_99th_percentile_is_a_value_that_was_measured(count: int, wanted: int) -> None:
    assert percentile([float(value) for value in range(1, count + 1)], 0.99) == wanted
