"""Answers about a model that are worth keeping as long as the model is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
V = TypeVar("V")


def remembered(read: Callable[[K], V]) -> Callable[[K], V]:
    """`read` called once for each object; the answer lives as long as the object."""
    kept: WeakKeyDictionary[K, V] = WeakKeyDictionary()

    def ask(key: K) -> V:
        try:
            return kept[key]
        except KeyError:
            answer = kept[key] = read(key)
            return answer

    return ask
