"""Whether two answers are the same, as far as another batch or order of sums may change them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from mmctl.tensors import Array

RELATIVE = ABSOLUTE = 1e-3

Outputs = Mapping[str, Array]


def find_difference(
    given: Outputs, rows: Sequence[Outputs], names: Sequence[str], *, batched: bool
) -> str | None:
    """Where `given` is not the answers to its rows, one after the other; None when it is."""
    for name in names:
        if name not in given:
            return f"no output `{name}`"
        if not batched:
            wanted = rows[0][name]
        elif len({row[name].shape[1:] for row in rows}) > 1:
            return f"`{name}`: rows of different shapes in one answer"
        else:
            wanted = np.concatenate([row[name] for row in rows])
        if problem := _difference(given[name], wanted):
            return f"`{name}`{problem}"
    return None


def _difference(given: Array, wanted: Array) -> str | None:
    if given.shape != wanted.shape:
        return f": shape {list(wanted.shape)} expected, {list(given.shape)} came"
    for place in np.ndindex(wanted.shape):
        if not _alike(given[place], wanted[place]):
            shown = ",".join(map(str, place))
            return f"[{shown}]: {_short(wanted[place])} expected, {_short(given[place])} came"
    return None


def _alike(given: object, wanted: object) -> bool:
    """Texts of JSON are compared by what they say: numbers in them may differ in the last digit."""
    given, wanted = _plain(given), _plain(wanted)
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        if isinstance(given, int) and isinstance(wanted, int):
            return given == wanted
        same = math.isclose(given, wanted, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return same or (math.isnan(given) and math.isnan(wanted))
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_alike, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(_alike(given[k], wanted[k]) for k in given)
    return given == wanted


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _short(value: object) -> str:
    text = str(value)
    return f"`{text}`" if len(text) <= 40 else f"`{text[:39]}…`"
