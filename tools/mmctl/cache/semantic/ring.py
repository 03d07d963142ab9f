"""The vectors of a process and what they lead to: the newest so many.

At 10,000 vectors of 384 numbers a product with all of them takes a quarter of a millisecond, finds
the true neighbours, and needs no index to be kept up: a new vector takes the place of the oldest.
For more of them than that there is a graph, where usearch is installed (`mmctl[usearch]`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from mmctl.cache.envelope import Vector
from mmctl.cache.semantic.graphs import Graphs, Places

T = TypeVar("T")

ENTRIES = 10_000
"""Over all partitions. Of more the vectors leave the processor's cache, and comparing all slows."""

_FLOOR = 0.5
"""Neighbours further away are not worth listing."""


class Near(NamedTuple, Generic[T]):
    """A neighbour: the cosine, and what was kept with it."""

    similarity: float
    item: T


class Ring(Generic[T]):
    """Vectors of length 1 with an item each. For any number of threads.

    `clock` gives seconds. What was written ends `ttl_s` later, however often it is found.
    """

    def __init__(self, entries: int = ENTRIES, clock: Callable[[], float] = time.time) -> None:
        self._entries = entries
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._counts: dict[int, int] = {}
        self._names: list[bytes] = []
        self._free: list[int] = []
        self._vectors = np.zeros((0, 0), np.float32)
        self._partitions = np.zeros(entries, np.int32)
        self._ends = np.zeros(entries)
        self._items: list[T | None] = [None] * entries
        self._next = 0
        self._size = 0
        self._graphs = _graphs() if entries > ENTRIES else None

    def __len__(self) -> int:
        """How many places are taken, by what has ended too."""
        return self._size

    def add(self, partition: bytes, vector: Vector, item: T, ttl_s: float) -> None:
        """Keep `vector`, float32 [D], in the place of the oldest. Those of one partition have the
        same length; a shorter one than others lies there with zeros behind it.
        """
        with self._lock:
            if vector.size > self._vectors.shape[1]:
                self._widen(vector.size)
            place = self._next
            if self._size == self._entries:
                self._forget(place)
            else:
                self._size += 1
            self._vectors[place, : vector.size] = vector
            self._vectors[place, vector.size :] = 0
            self._partitions[place] = number = self._number(partition)
            if self._graphs is not None:
                self._graphs.add(number, place, vector)
            self._ends[place] = self._clock() + ttl_s
            self._items[place] = item
            self._next = (place + 1) % self._entries

    def search(self, partition: bytes, vector: Vector, count: int) -> list[Near[T]]:
        """The nearest of a partition that have not ended, nearest first, `count` at most."""
        with self._lock:
            number = self._numbers.get(partition)
            if number is None:
                return []
            if self._graphs is None:
                near, found = self._among_all(number, vector)
            else:
                near, found = self._by_graph(self._graphs, number, vector, count)
            if len(near) > count:
                some = np.argpartition(-found, count)[:count]
                near, found = near[some], found[some]
            order = np.argsort(-found, kind="stable")
            pairs = zip(found[order].tolist(), near[order].tolist(), strict=True)
            return [Near(cosine, self._item(place)) for cosine, place in pairs]

    def _among_all(self, number: int, vector: Vector) -> tuple[Places, Vector]:
        cosines = self._vectors[: self._size, : vector.size] @ vector
        near = np.flatnonzero(cosines >= _FLOOR)
        near = near[(self._partitions[near] == number) & (self._ends[near] > self._clock())]
        return near, cosines[near]

    def _by_graph(
        self, graphs: Graphs, number: int, vector: Vector, count: int
    ) -> tuple[Places, Vector]:
        """What has ended leaves the graph when it is met, lest it stand before what has not."""
        now, wanted = self._clock(), count
        near = graphs.near(number, vector, wanted)
        while (ended := self._ends[near] <= now).any():
            graphs.remove(number, near[ended])
            wanted *= 2  # so that an hour's worth of them is gone in a few turns
            near = graphs.near(number, vector, wanted)
        cosines = self._vectors[near, : vector.size] @ vector
        listed = cosines >= _FLOOR
        return near[listed], cosines[listed]

    def _item(self, place: int) -> T:
        item = self._items[place]
        assert item is not None
        return item

    def _widen(self, dimensions: int) -> None:
        older = self._vectors
        self._vectors = np.zeros((self._entries, dimensions), np.float32)
        self._vectors[: len(older), : older.shape[1]] = older

    def _number(self, partition: bytes) -> int:
        """A small number that stands for a partition while it has entries."""
        number = self._numbers.get(partition)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = partition
            else:
                number = len(self._names)
                self._names.append(partition)
            self._numbers[partition] = number
            self._counts[number] = 0
        self._counts[number] += 1
        return number

    def _forget(self, place: int) -> None:
        number = int(self._partitions[place])
        if self._graphs is not None:
            self._graphs.remove(number, np.array([place]))
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._names[number]]
            self._free.append(number)


def _graphs() -> Graphs | None:
    """None where usearch is not installed: all are compared then, which takes longer."""
    try:
        return Graphs()
    except ImportError:
        return None
