"""The ready-made step `labels`: scores of a classifier -> its best label and that label's score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def make(options: Mapping[str, Any], folder: Path) -> Callable[..., dict[str, Any]]:
    """`f(scores [batch, n])` -> label [batch], score [batch]."""
    names = options["labels"] or (folder / options["file"]).read_text("utf-8").splitlines()
    labels_of = np.array(names, dtype=object)

    def labels(scores: Any) -> dict[str, Any]:
        if scores.shape[-1] != len(labels_of):
            raise ValueError(f"`scores` has {scores.shape[-1]} values for {len(labels_of)} labels")
        values = softmax(scores) if options["softmax"] else scores
        best = values.argmax(axis=-1)
        top = np.take_along_axis(values, best[:, None], axis=-1)[:, 0]
        return {"label": labels_of[best], "score": top.astype(np.float32)}

    return labels


def softmax(scores: Any) -> Any:
    """Over the last axis, shifted by its largest value so that nothing overflows."""
    powers = np.exp(scores.astype(np.float32) - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
