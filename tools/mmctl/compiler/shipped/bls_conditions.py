"""Conditions of `when`: trees of plan.json, and what they say of each row.

Part of the runner of the bls form (model.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def references(tree: Any) -> Iterator[tuple[str, str]]:
    """Node and tensor of each reference in a condition."""
    if tree is None or tree[0] == "value":
        return
    if tree[0] == "ref":
        yield tree[1], tree[2]
        return
    for branch in tree[1:]:
        yield from references(branch)


def conjuncts(tree: Any) -> list[Any]:
    """Trees that all have to hold."""
    if tree is None:
        return []
    return tree[1:] if tree[0] == "and" else [tree]


COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def evaluate(tree: Any, look: Callable[[str, str], Any]) -> Any:
    """A condition's value for each row; `look` gives an array [rows, ...] for a reference."""
    operator = tree[0]
    if operator == "value":
        return tree[1].encode() if isinstance(tree[1], str) else tree[1]
    if operator == "ref":
        array = look(tree[1], tree[2])
        return array[(slice(None), *tree[3])] if tree[3] else array.reshape(len(array))
    values = [evaluate(branch, look) for branch in tree[1:]]
    if operator == "not":
        return np.logical_not(values[0])
    if operator in COMPARE:
        return COMPARE[operator](*values)
    join = np.logical_and if operator == "and" else np.logical_or
    found = values[0]
    for value in values[1:]:
        found = join(found, value)
    return found
