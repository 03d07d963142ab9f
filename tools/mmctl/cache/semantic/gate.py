"""The gate: the chance that two texts have the same answer, and from which chance on one is given.

What it looks at, of the nearest entries: the best cosine; by how much it is nearer than the nearest
entry with another answer; how many of the first five have the same answer; the second cosine. A
logistic model of these is fitted on one part of the labels. Where to draw the line is chosen on
that part too, and proved on the other, which nothing was chosen on: of what lies beyond the line,
the share of errors is at most `max_error`, with 95 % confidence (Clopper and Pearson). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmctl.cache.semantic.bounds import at_most, upper

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Lines = list[float]

NEIGHBOURS = 8
"""Entries that are looked at."""
VOTERS = 5
CONFIDENCE = 0.95

_RIDGE = 0.1
_NEARER = (1.0, 0.0, 0.0, 0.0)
_ROUNDS = 50
_STEP = 1e-8
_MARGIN_UNSEEN = 0.05
"""Behind the last neighbour an entry with another answer may come at once, or so much later."""
ROOM = 0.5
"""A proof is tried where the labels that chose the line bound its errors by this share of what is
promised: one that fails costs labels and confidence.
"""
FEATURES = 4
_LINES = 40
"""Places of the line that are considered, evenly spread over the labels."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A fitted model. `center` and `scale` are those of the features it was fitted on."""

    weights: tuple[float, ...]
    bias: float
    center: tuple[float, ...]
    scale: tuple[float, ...]

    def scores(self, features: Floats) -> Floats:
        """[N] chances, of [N, 4] features."""
        scaled = (features - np.array(self.center)) / np.array(self.scale)
        return _logistic(scaled @ np.array(self.weights) + self.bias)

    def score(self, features: Sequence[float]) -> float:
        return float(self.scores(np.array([features]))[0])


@dataclass(frozen=True, slots=True)
class Calibration:
    """A gate, the line it may open at, and the proof: `errors` of `count` held-out labels were
    wrong, so that at most `error_upper` are, with a confidence of 95 %.
    """

    gate: Gate
    line: float
    errors: int
    count: int
    error_upper: float
    coverage: float
    """The share of held-out labels that lie beyond the line."""

    def saved(self) -> dict[str, Any]:
        """Plain data, for `restored`."""
        gate = self.gate
        return {
            "weights": list(gate.weights),
            "bias": gate.bias,
            "center": list(gate.center),
            "scale": list(gate.scale),
            "line": self.line,
            "errors": self.errors,
            "count": self.count,
            "error_upper": self.error_upper,
            "coverage": self.coverage,
        }

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Calibration:
        """Raises ValueError, TypeError, KeyError or OverflowError for what `saved` never gives."""
        weights, center, scale = (
            tuple(map(float, saved[name])) for name in ("weights", "center", "scale")
        )
        if not len(weights) == len(center) == len(scale) == FEATURES or min(scale) <= 0:
            raise ValueError("no gate")
        gate = Gate(weights, float(saved["bias"]), center, scale)
        return cls(
            gate,
            float(saved["line"]),
            int(saved["errors"]),
            int(saved["count"]),
            float(saved["error_upper"]),
            float(saved["coverage"]),
        )


def features_of(similarities: Sequence[float], same: Sequence[bool]) -> tuple[float, ...]:
    """Of the neighbours, nearest first; `same`: which of them have the answer of the nearest."""
    best = similarities[0]
    other = next(
        (s for s, is_same in zip(similarities, same, strict=True) if not is_same),
        similarities[-1] - _MARGIN_UNSEEN,
    )
    voters = same[:VOTERS]
    second = similarities[1] if len(similarities) > 1 else 0.0
    return best, best - other, sum(voters) / len(voters), second


def fitted(features: Floats, same: Bools) -> Gate | None:
    """By Newton's method, with a ridge on the weights. Where none was wrong, nearer is better: that
    is to be proved as any other gate is. None where none was right.
    """
    if not same.any():
        return None
    center, scale = features.mean(0), np.maximum(features.std(0), 1e-6)
    if same.all():
        return Gate(_NEARER, 0.0, tuple(center.tolist()), tuple(scale.tolist()))
    columns = np.column_stack([(features - center) / scale, np.ones(len(features))])
    ridge = np.full(columns.shape[1], _RIDGE)
    ridge[-1] = 1e-6
    weights = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        chances = _logistic(columns @ weights)
        slope = columns.T @ (same - chances) - ridge * weights
        bend = (columns.T * (chances * (1 - chances))) @ columns + np.diag(ridge)
        step = np.linalg.solve(bend, slope)
        weights = weights + np.clip(step, -5, 5)
        if np.abs(step).max() < _STEP:
            break
    return Gate(
        tuple(weights[:-1].tolist()),
        float(weights[-1]),
        tuple(center.tolist()),
        tuple(scale.tolist()),
    )


def lines_of(gate: Gate, fit: tuple[Floats, Bools], max_error: float, confidence: float) -> Lines:
    """Lines that have a chance of being proved, the likeliest first, then ever lower ones: those
    beyond which the labels of `fit` themselves would prove `max_error`. None where not one would
    prove ROOM of it.
    """
    scores = gate.scores(fit[0])
    order = np.argsort(-scores, kind="stable")
    wrong = np.cumsum(~fit[1][order])
    places = np.unique(np.linspace(0, len(order) - 1, _LINES + 1).astype(int)[1:])
    chances = {
        place: at_most(int(wrong[place]), place + 1, ROOM * max_error) for place in places.tolist()
    }
    likeliest = min(chances, key=lambda place: chances[place])
    if chances[likeliest] > 1 - confidence:
        return []
    return [
        float(scores[order[place]])
        for place in chances
        if place >= likeliest and at_most(int(wrong[place]), place + 1, max_error) <= 1 - confidence
    ]


def proved(
    gate: Gate,
    lines: Lines,
    proof: tuple[Floats, Bools],
    max_error: float,
    confidence: float = CONFIDENCE,
) -> Calibration | None:
    """The lowest line that is proved, or None. Nothing was ever chosen by the labels of `proof`.

    Each line is tried with the whole confidence, until one cannot be proved: in an order that was
    fixed before, that is one test, not many.
    """
    scores, found = gate.scores(proof[0]), None
    for line in lines:
        beyond = scores >= line
        count, errors = int(beyond.sum()), int((beyond & ~proof[1]).sum())
        bound = upper(errors, count, confidence)
        if bound > max_error:
            break
        found = Calibration(gate, line, errors, count, bound, count / len(scores))
    return found


def _logistic(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(values, -40, 40)))
