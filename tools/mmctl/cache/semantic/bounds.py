"""What counts of errors say of the rate behind them: exact binomial bounds of Clopper and Pearson.

Pure, standard library. A bound holds for a sample that was not used to choose what is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma, log, log1p

_STEPS = 60


def upper(errors: int, count: int, confidence: float = 0.95) -> float:
    """The rate is at most this: the one at which so few errors have a chance of 1 - confidence."""
    if errors >= count:
        return 1.0
    return _solved(lambda rate: at_most(errors, count, rate) > 1 - confidence)


def lower(errors: int, count: int, confidence: float = 0.95) -> float:
    """The rate is at least this."""
    if errors == 0:
        return 0.0
    return _solved(lambda rate: 1 - at_most(errors - 1, count, rate) < 1 - confidence)


def interval(errors: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Both sides together."""
    each = (1 + confidence) / 2
    return lower(errors, count, each), upper(errors, count, each)


def at_most(errors: int, count: int, rate: float) -> float:
    """The chance of no more than `errors` in `count`."""
    if rate <= 0 or errors >= count:
        return 1.0
    if rate >= 1:
        return 0.0
    whole, yes, no = lgamma(count + 1), log(rate), log1p(-rate)
    return min(
        1.0,
        sum(
            exp(
                whole
                - lgamma(found + 1)
                - lgamma(count - found + 1)
                + found * yes
                + (count - found) * no
            )
            for found in range(errors + 1)
        ),
    )


def _solved(is_below: Callable[[float], bool]) -> float:
    """Where a property that small rates have ends, by halving."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if is_below(middle):
            low = middle
        else:
            high = middle
    return high
