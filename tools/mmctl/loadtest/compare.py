"""Two runs beside each other: better, worse, or no difference that can be told. Pure.

Requests of one moment are alike (a queue is long for all of them), so single latencies are no
independent samples. The bootstrap draws slices of each run instead, whole ones, with replacement
(the block bootstrap of Künsch, 1989), and takes the ratio of the two each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from mmctl.loadtest.record import Slice
from mmctl.quantiles import PERCENTS

DRAWS = 2000
LEAST_SLICES = 5
INTERVAL = (2.5, 97.5)
"""Of the draws, in percent."""

Numbers = npt.NDArray[np.float64]


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    UNKNOWN = "not enough data"


@dataclass(frozen=True, slots=True)
class Difference:
    """`after` by `before` of one measure: their ratio, its 95 % interval, and what it means.
    Without a ratio (nothing before, or too few slices) there is no interval.
    """

    measure: str
    before: float | None
    after: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict


def differences(
    before: Sequence[Slice], after: Sequence[Slice], seed: int = 0, *, alike: bool = False
) -> list[Difference]:
    """One for each quantile of the latency (ms), for the throughput (requests a second) and for
    the share of requests that failed.

    `alike`: both have the same profile, so the n-th slice of one was offered what the n-th of the
    other was. They are drawn together then: what differs between the levels of a run, or between
    the top and the foot of a burst, is no uncertainty about the two.
    """
    rng = np.random.default_rng(seed)
    both = (before, after)
    draws = [_draws(len(parts), rng) for parts in both]
    if alike and len(before) == len(after):
        draws[1] = draws[0]
    drawn = [_measures(parts, weights) for parts, weights in zip(both, draws, strict=True)]
    real = [_measures(parts, np.ones((1, len(parts)))) for parts in both]
    few = min(len(before), len(after)) < LEAST_SLICES
    return [
        _difference(name, real[0][name][0], real[1][name][0], drawn[0][name], drawn[1][name], few)
        for name in real[0]
    ]


def _draws(slices: int, rng: np.random.Generator) -> Numbers:
    """How often each slice is in each draw, [draws, slices]."""
    drawn = rng.multinomial(slices, np.full(slices, 1 / slices), size=DRAWS) if slices else None
    return np.zeros((DRAWS, 0)) if drawn is None else drawn.astype(np.float64)


def _measures(parts: Sequence[Slice], weights: Numbers) -> dict[str, Numbers]:
    """By name, a number for each row of `weights`; NaN where there is none."""
    found = [dict(part.latency.counts()) for part in parts]
    values = sorted({ms for counts in found for ms in counts})
    counts = np.array([[row.get(ms, 0) for ms in values] for row in found], dtype=np.float64)
    counts = counts.reshape(len(parts), len(values))
    cumulative = np.cumsum(weights @ counts, axis=1)
    completed, failed, seconds = (
        weights @ np.array(numbers, dtype=np.float64)
        for numbers in (
            [part.completed for part in parts],
            [part.failed for part in parts],
            [part.seconds for part in parts],
        )
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            **{f"{n}_ms": _quantile(cumulative, values, q / 100) for n, q in PERCENTS.items()},
            "throughput": completed / seconds,
            "failed": failed / (failed + completed),
        }


def _quantile(cumulative: Numbers, values: Sequence[float], share: float) -> Numbers:
    """Nearest rank, by row."""
    if not values:
        return np.full(len(cumulative), np.nan)
    total = cumulative[:, -1]
    column = np.argmax(cumulative >= np.maximum(1, np.ceil(share * total))[:, None], axis=1)
    return np.where(total > 0, np.array(values)[column], np.nan)


def _difference(
    name: str, before: float, after: float, befores: Numbers, afters: Numbers, few: bool
) -> Difference:
    numbers = _known(before), _known(after)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = afters / befores
        ratio = _known(after / before) if before else None
    ratios = ratios[np.isfinite(ratios)]
    if few or ratio is None or len(ratios) < DRAWS / 2:
        same = before == after == 0  # as when no request has failed
        return Difference(
            name, *numbers, ratio, None, None, Verdict.SAME if same else Verdict.UNKNOWN
        )
    low, high = (float(bound) for bound in np.percentile(ratios, INTERVAL))
    less, more = Verdict.BETTER, Verdict.WORSE
    if name == "throughput":
        less, more = more, less
    verdict = less if high < 1 else more if low > 1 else Verdict.SAME
    return Difference(name, *numbers, ratio, low, high, verdict)


def _known(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None
