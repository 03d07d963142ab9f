"""The ready-made step `threshold`: a score -> whether it passes, and the name of its band."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def make(options: Mapping[str, Any], _folder: Path) -> Callable[..., dict[str, Any]]:
    """`f(score [batch] or [batch, n])` -> passed [batch]: it reaches the last threshold.

    A score that equals a threshold reaches it. `label` is one of n + 1 bands for n thresholds.
    """
    thresholds = np.array(options["at"])
    labels_of = np.array(options["labels"] or (), dtype=object)
    index = options["index"]

    def threshold(score: Any) -> dict[str, Any]:
        values = score if index is None else column(score, index)
        bands = (values[:, None] >= thresholds.astype(values.dtype)).sum(axis=-1)
        passed = bands == len(thresholds)
        return {"passed": passed, "label": labels_of[bands] if len(labels_of) else None}

    return threshold


def column(score: Any, index: int) -> Any:
    if index >= score.shape[-1]:
        raise ValueError(f"`score` has {score.shape[-1]} values, so none at index {index}")
    return score[:, index]
