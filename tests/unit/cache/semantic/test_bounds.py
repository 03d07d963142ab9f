"""Exact binomial bounds, against values of the beta distribution."""

from __future__ import annotations

from math import log

import pytest

from mmctl.cache.semantic.bounds import at_most, interval, lower, upper


@pytest.mark.parametrize(
    ("errors", "count", "bound"),
    [
        # scipy.stats.beta.ppf(0.95, errors + 1, count - errors)
        pytest.param(0, 59, 0.0495081, id="59 without an error: 5 %"),
        pytest.param(0, 149, 0.0199048, id="149 without an error: 2 %"),
        pytest.param(0, 299, 0.0099691, id="299 without an error: 1 %"),
        pytest.param(3, 384, 0.0200671, id="some errors"),
        pytest.param(5, 5, 1.0, id="nothing but errors"),
        pytest.param(0, 0, 1.0, id="nothing at all"),
    ],
)
def test_the_upper_bound(errors: int, count: int, bound: float) -> None:
    assert upper(errors, count) == pytest.approx(bound, abs=1e-6)


def test_both_sides() -> None:
    # scipy.stats.beta.ppf(0.025, 3, 98), (0.975, 4, 97)
    assert interval(3, 100) == pytest.approx((0.0062300, 0.0851761), abs=1e-6)
    assert interval(0, 10)[0] == 0
    assert interval(10, 10) == pytest.approx((0.6915029, 1.0), abs=1e-6)
    assert lower(0, 0) == 0


def test_no_error_in_so_many() -> None:
    assert upper(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert log(0.05) / log(0.98) == pytest.approx(148.3, abs=0.1)


def test_the_tail_is_a_probability() -> None:
    assert at_most(2, 4, 0.5) == pytest.approx(11 / 16)
    assert at_most(-1, 4, 0.5) == 0
    assert (at_most(3, 3, 0.5), at_most(0, 3, 0.0), at_most(0, 3, 1.0)) == (1, 1, 0)
    assert at_most(900, 100_000, 0.01) == pytest.approx(0.00067, abs=1e-4)
