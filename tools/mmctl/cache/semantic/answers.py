"""Whether two answers are the same one: by the output that says so, or by all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mmctl.cache.envelope import Entry
from mmctl.tensors import Array

Compare = Callable[[Entry, Entry], bool]


def by_output(name: str, within: float | None = None) -> Compare:
    """The answers are the same when this output is: labels and whole numbers when equal, scores
    when the same one is the largest, other numbers when none is further away than `within`.
    """

    def same(a: Entry, b: Entry) -> bool:
        return (
            name in a.outputs
            and name in b.outputs
            and _same(a.outputs[name], b.outputs[name], within)
        )

    return same


def by_all(a: Entry, b: Entry) -> bool:
    """The answers are the same when all outputs are, bit by bit."""
    return a.outputs.keys() == b.outputs.keys() and all(
        _equal(array, b.outputs[name]) for name, array in a.outputs.items()
    )


def _same(a: Array, b: Array, within: float | None) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return _equal(a, b)
    if within is not None:
        return bool((np.abs(a.astype(np.float64) - b.astype(np.float64)) <= within).all())
    if a.ndim and a.shape[-1] > 1:
        return bool((a.argmax(-1) == b.argmax(-1)).all())
    return _equal(a, b)


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tolist() == b.tolist()
