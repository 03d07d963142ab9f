"""Whether two answers are the same, as far as another batch may change them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mmctl.tensors import Array, DType, dtype_of
from mmctl.trials.answers import find_difference
from mmctl.trials.runcheck.questions import Outputs

TOLERANCES = {DType.FP16: 1e-2, DType.FP32: 1e-4, DType.FP64: 1e-4}
"""Of the largest value of a row; whole numbers, booleans and texts are exact."""

LITTLE = 0.02
"""Below this share of the largest value a difference is what a dynamic scale makes."""


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """The largest one of an output: `share` of its largest value, 1 for what is no number."""

    share: float
    name: str
    text: str


def find_change(given: Outputs, wanted: Outputs, names: Iterable[str]) -> Difference | None:
    """Where one row is not what it was in another answer, the worst output; None where it is.

    Rows of different shapes are not compared: a batch is padded to its longest row.
    """
    found = [
        change
        for name in names
        if name in given and name in wanted and given[name].shape == wanted[name].shape
        if (change := _change(name, given[name], wanted[name]))
    ]
    return max(found, default=None)


def row_of(outputs: Outputs, row: int) -> Outputs:
    """One row of a batch; an output that has no such row is left out."""
    return {name: array[row] for name, array in outputs.items() if array.ndim and row < len(array)}


def _change(name: str, given: Array, wanted: Array) -> Difference | None:
    if given.dtype == object or wanted.dtype != given.dtype:
        return _change_of_texts(name, given, wanted)
    came, was = given.astype(float), wanted.astype(float)
    same = (given == wanted) | (np.isnan(came) & np.isnan(was))
    scale = float(np.max(np.abs(was), initial=0.0, where=np.isfinite(was)))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.nan_to_num(np.abs(came - was), nan=np.inf))
    largest = float(np.max(off, initial=0.0))
    if largest <= TOLERANCES.get(dtype_of(given.dtype), 0.0) * scale:
        return None
    place = np.unravel_index(int(np.argmax(off)), off.shape)
    share = largest / scale if scale and given.dtype.kind == "f" else 1.0
    return Difference(min(1.0, share), name, _told(wanted[place], given[place]))


def _change_of_texts(name: str, given: Array, wanted: Array) -> Difference | None:
    """Numbers in texts of JSON may differ in the last digit."""
    came, was = _readable(given), _readable(wanted)
    if find_difference({name: came}, [{name: was}], [name], batched=False) is None:
        return None
    places = [place for place in np.ndindex(was.shape) if came[place] != was[place]]
    return Difference(1.0, name, _told(was[places[0]], came[places[0]]))


def _readable(array: Array) -> Array:
    texts = np.empty(array.size, dtype=object)
    texts[:] = [i.decode(errors="replace") if isinstance(i, bytes) else i for i in array.ravel()]
    return texts.reshape(array.shape)


def _told(was: object, came: object) -> str:
    return f"{_short(was)} alone and {_short(came)} beside other rows"


def _short(value: object) -> str:
    if isinstance(value, np.floating):
        return f"{value:.6g}"
    text = str(value)
    return f"`{text}`" if len(text) <= 40 else f"`{text[:39]}…`"
