"""Medians with an interval; no distribution is assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmctl.quantiles import quantile

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median, and the interval that holds the true one with at least 95 %."""

    median: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    """From order statistics. Of fewer than 6 values the interval is their whole range, and says
    less than 95 %.
    """
    ordered = sorted(values)
    first = _left_out(len(ordered))
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return Estimate(middle, ordered[first], ordered[-1 - first])


def _left_out(count: int) -> int:
    """How many values may be cut off at each end."""
    allowed = (1 - CONFIDENCE) * 2**count / 2
    cut, tail = 0, 1
    while tail <= allowed:
        cut += 1
        tail += math.comb(count, cut)
    return max(0, cut - 1)


def ratios(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Of values that were measured in turn with those of `base`: pair by pair, so that what slows
    the machine for a while slows both.
    """
    return estimate([value / other for value, other in zip(values, base, strict=True)])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return quantile(sorted(values), share)
