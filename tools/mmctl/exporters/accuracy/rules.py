"""Which metric judges which output, and how good it has to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.accuracy.data import OwnMetric
from mmctl.exporters.accuracy.options import Precision
from mmctl.tensors import Array

Answers = Mapping[str, Array]

LEAST = {"fp16": 0.999}
LEAST_ELSE = 0.99
LEAST_OF_TEXT = 0.95
"""Of BLEU and ROUGE against FP32's own text, which differs from the first other word on."""
CLASSIFIERS = {"class", "label", "logits", "probabilities", "probs", "scores"}


@dataclass(frozen=True, slots=True)
class Rules:
    """What model.yaml says. `classes` are the outputs that have a label file there."""

    precision: Precision
    metric: str | None = None
    least: float | None = None
    max_drop: float = 1
    """In points."""
    classes: frozenset[str] = frozenset()
    own: OwnMetric | None = None


def least_of(metric: str, rules: Rules) -> float:
    if rules.least is not None:
        return rules.least
    return LEAST_OF_TEXT if metric in ("bleu", "rouge") else LEAST.get(rules.precision, LEAST_ELSE)


def metric_for(name: str, want: Array, rules: Rules, right: Array | None) -> str:
    """The metric that model.yaml names, else the one that tells most about such an output."""
    if rules.metric is not None:
        _check_tells(rules.metric, name, want)
        return rules.metric
    if want.dtype.kind != "f":
        return "agreement" if right is None else "accuracy"
    if is_one_value(want):
        return "closeness"
    if right is not None:
        return "accuracy"
    classifies = name in rules.classes or name in CLASSIFIERS or _are_shares(want)
    return "agreement" if classifies and rules.precision != "fp16" else "cosine"


def is_one_value(array: Array) -> bool:
    """Whether the last axis, after the batch, has one place: there, any two answers agree."""
    return array.ndim < 2 or array.shape[-1] == 1


def _are_shares(array: Array) -> bool:
    values = array.astype(np.float64)
    sums = values.sum(axis=-1)
    return bool((values >= 0).all() and np.allclose(sums, 1, atol=1e-3))


def _check_tells(metric: str, name: str, want: Array) -> None:
    floats = want.dtype.kind == "f"
    if floats and is_one_value(want) and metric in ("agreement", "cosine", "accuracy"):
        raise InputError(
            f"`metric: {metric}` tells nothing about `{name}`, which is one number a row",
            hint="use `metric: closeness`",
        )
    if metric in ("cosine", "closeness") and not floats:
        raise InputError(
            f"`metric: {metric}` is for floats, `{name}` is {want.dtype}",
            hint="use `metric: agreement`",
        )
    if metric in ("bleu", "rouge") and want.dtype.kind not in "OSU":
        raise InputError(f"`metric: {metric}` is for texts, `{name}` is {want.dtype}")
