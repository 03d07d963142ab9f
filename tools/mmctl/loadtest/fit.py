"""What a batch of a model costs, from what a server has counted: `per_row`·n + `fixed`. Pure.

Triton counts, by size of the batch, how many there were and how long they took. A line through
the means, each weighed by its number, is the cost; neither part of it can be negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmctl.client.statistics import ModelStatistics
from mmctl.loadtest.simulate import Cost

ENOUGH = 3
"""Batches of one size; the mean of fewer says little. Unless there are no others."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost, and the share by which it misses what was measured, the mean over all batches."""

    cost: Cost
    error: float
    sizes: tuple[int, ...]
    """Of the batches that it rests on: a cost of larger ones is a guess."""


@dataclass(frozen=True, slots=True)
class Point:
    """`count` batches of `rows` took `seconds` each, as a mean."""

    rows: int
    seconds: float
    count: int


def fit_cost(points: Sequence[Point]) -> Fit:
    """Least squares, weighed by count. One size alone cannot tell `per_row`: then all is `fixed`,
    which is what is known of that size. Raises ValueError without any point.
    """
    points = [point for point in points if point.count >= ENOUGH] or list(points)
    if not points:
        raise ValueError("no batch was measured")
    weight = sum(point.count for point in points)
    x = sum(point.rows * point.count for point in points) / weight
    y = sum(point.seconds * point.count for point in points) / weight
    xx = sum((point.rows - x) ** 2 * point.count for point in points)
    xy = sum((point.rows - x) * (point.seconds - y) * point.count for point in points)
    slope = xy / xx if xx else 0.0
    if slope <= 0:
        cost = Cost(y)
    elif y - slope * x >= 0:
        cost = Cost(y - slope * x, slope)
    else:  # through the origin: the best line whose fixed part is not negative
        moment = sum(point.rows**2 * point.count for point in points)
        cost = Cost(0.0, sum(p.rows * p.seconds * p.count for p in points) / moment)
    missed = sum(abs(cost.of(p.rows) - p.seconds) * p.count for p in points)
    return Fit(cost, missed / (y * weight) if y else 0.0, tuple(sorted(p.rows for p in points)))


def points_of(stats: ModelStatistics) -> tuple[Point, ...]:
    return tuple(
        Point(size, stats.batch_ns.get(size, 0) / count / 1e9, count)
        for size, count in sorted(stats.batches.items())
        if count > 0
    )


def fit_all(statistics: Iterable[ModelStatistics]) -> dict[str, Fit]:
    """By model, for those that were asked anything; versions of a model count together."""
    points: dict[str, list[Point]] = {}
    for stats in statistics:
        points.setdefault(stats.model, []).extend(points_of(stats))
    return {model: fit_cost(found) for model, found in points.items() if found}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one instance: `weights` at rest, and `per_row` more for each row of a batch."""

    weights: float
    per_row: float

    def of(self, rows: int) -> float:
        """With batches of so many rows."""
        return self.weights + self.per_row * rows


def fit_memory(at_rest: float, peaks: Mapping[int, float]) -> Memory:
    """`peaks` has the most that an instance held, by the largest batch until then. The steepest
    rise counts: a guard that promises too much is none.
    """
    rises = [(peak - at_rest) / rows for rows, peak in peaks.items() if rows > 0]
    return Memory(at_rest, max(0.0, *rises) if rises else 0.0)
