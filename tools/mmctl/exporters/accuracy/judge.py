"""Answers of a converted file beside FP32's, batch after batch, and what to think of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.accuracy.data import Labels, OwnMetric
from mmctl.exporters.accuracy.metrics import (
    AGAINST_FP32,
    ON_LABELS,
    Estimate,
    Scorer,
    Scores,
    estimate,
    estimate_drop,
    numbers_of,
)
from mmctl.exporters.accuracy.rules import Answers, Rules, least_of, metric_for
from mmctl.exporters.gates import SMALLEST_SCALE, scale_of
from mmctl.tensors import Array

ENOUGH_ROWS = 30
"""Below it no interval means anything."""
ALL_OUTPUTS = "all outputs"


@dataclass(frozen=True, slots=True)
class Judged:
    """One metric of one output. A drop is in points, and the less the better."""

    metric: str
    output: str
    found: Estimate
    limit: float
    is_drop: bool = False
    fp32: float | None = None
    """The metric of FP32 itself, on labels."""

    @property
    def is_within(self) -> bool:
        value = self.found.value
        return value <= self.limit if self.is_drop else value >= self.limit

    @property
    def doubt(self) -> str:
        """Why the data is too small to tell; "" when it is not."""
        rows, low, high = self.found.rows, self.found.low, self.found.high
        if rows < ENOUGH_ROWS:
            return f"{rows} held-out rows are too few to tell"
        if high > self.limit if self.is_drop else low < self.limit:
            return (
                f"{rows} held-out rows are too few to tell: the 95 % interval of {self.metric} is "
                f"{low:.4g} to {high:.4g}, the limit {self.limit:.4g}"
            )
        return ""

    def text(self) -> str:
        """`agreement of `logits` with FP32 is 0.36 (95 %: 0.33 to 0.40), the limit is 0.99`."""
        interval = f"(95 %: {self.found.low:.4g} to {self.found.high:.4g}, {self.found.rows} rows)"
        if self.is_drop:
            what = f"{self.metric} of `{self.output}` falls by {self.found.value:.4g} points"
        else:
            against = "" if self.fp32 is not None else " with FP32"
            what = f"{self.metric} of `{self.output}`{against} is {self.found.value:.4g}"
        return f"{what} {interval}, the limit is {self.limit:.4g}"


@dataclass(slots=True)
class Tally:
    """Scores of one output by one metric, of all batches so far."""

    metric: str
    output: str
    after: list[Scores] = field(default_factory=list)
    before: list[Scores] = field(default_factory=list)
    """Of FP32, on labels."""
    scale: float = SMALLEST_SCALE

    def judged(self, rules: Rules) -> list[Judged]:
        scores = np.concatenate(self.after)
        if self.before:
            return self._on_labels(scores, np.concatenate(self.before), rules)
        if self.metric == "closeness":
            scores = 1 - scores / self.scale
        least = least_of(self.metric, rules)
        return [Judged(self.metric, self.output, estimate(scores), least)]

    def _on_labels(self, after: Scores, before: Scores, rules: Rules) -> list[Judged]:
        fp32 = float(before.mean())
        drop = _in_points(estimate_drop(before, after))
        judged = [Judged(self.metric, self.output, drop, rules.max_drop, is_drop=True, fp32=fp32)]
        if rules.least is not None:
            judged.append(Judged(self.metric, self.output, estimate(after), rules.least, fp32=fp32))
        return judged


def _in_points(found: Estimate) -> Estimate:
    return Estimate(100 * found.value, 100 * found.low, 100 * found.high, found.rows)


class Judge:
    """Compares answers with FP32's, batch after batch."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._tallies: dict[str, Tally] = {}

    def add(self, got: Answers, want: Answers, labels: Labels) -> None:
        """Answers have the batch axis in front, of equal shapes. Raises InputError for labels that
        do not fit, or a metric that tells nothing about an output.
        """
        if self.rules.own is not None:
            self._add_own(self.rules.own, got, want, labels)
            return
        for name, array in want.items():
            right = labels.get(name, labels.get("") if len(want) == 1 else None)
            self._add(name, got[name], array, right)

    def judged(self) -> list[Judged]:
        """Those that fail come first."""
        found = [j for tally in self._tallies.values() for j in tally.judged(self.rules)]
        return sorted(found, key=lambda judged: judged.is_within)

    def _add(self, name: str, got: Array, want: Array, right: Array | None) -> None:
        if name not in self._tallies:
            self._tallies[name] = Tally(metric_for(name, want, self.rules, right), name)
        tally = self._tallies[name]
        if right is not None and tally.metric in ON_LABELS:
            score = ON_LABELS[tally.metric]
            tally.before.append(score(want, right))
            tally.after.append(score(got, right))
        elif tally.metric == "closeness":
            tally.scale = max(tally.scale, scale_of(want))
            tally.after.append(_errors(got, want))
        else:
            tally.after.append(_against_fp32(tally.metric)(got, want))

    def _add_own(self, own: OwnMetric, got: Answers, want: Answers, labels: Labels) -> None:
        metric = str(self.rules.metric)
        tally = self._tallies.setdefault(metric, Tally(metric, ALL_OUTPUTS))
        given = labels.get("", labels or None)
        rows = len(next(iter(want.values())))
        tally.before.append(_own_scores(own, want, given, rows, metric))
        tally.after.append(_own_scores(own, got, given, rows, metric))


def _own_scores(own: OwnMetric, answers: Answers, labels: Any, rows: int, metric: str) -> Scores:
    scores = np.asarray(own(answers, labels))
    if scores.shape != (rows,) or scores.dtype.kind not in "bfiu":
        raise InputError(
            f"`{metric}` returns {scores.dtype} of shape {list(scores.shape)} for {rows} rows",
            hint="return one number for each row, between 0 and 1, more is better",
        )
    if scores.dtype.kind == "f" and not np.isfinite(scores).all():
        raise InputError(f"`{metric}` returns NaN or infinity")
    return scores if scores.dtype == np.bool_ else scores.astype(np.float64)


def _errors(got: Array, want: Array) -> Scores:
    a, b = numbers_of(got, want)
    return np.asarray(np.abs(a - b).mean(axis=1))


def _against_fp32(metric: str) -> Scorer:
    if metric not in AGAINST_FP32:
        raise InputError(
            f"`metric: {metric}` needs labels, which `verify.data` does not give",
            hint='yield {"inputs": {...}, "labels": ...}',
        )
    return AGAINST_FP32[metric]
