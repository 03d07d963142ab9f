"""Answers that nodes with `cache` gave lately, and calls that others wait for.

Part of the runner of the bls form (model.py). An answer is found by the digest of what it rests on:
the content of the model, the outputs asked for, what the call takes along and the bytes of the
inputs. So a node behind one that ran again, and gave the same, is found as well. A batch is looked
up row by row where the shape of a row's outputs cannot depend on the other rows, else as a whole.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_parts import Part
    from mmctl.compiler.shipped.bls_plan import Node
    from mmctl.compiler.shipped.bls_values import OBJECT, Arrays, array_of
    from mmctl.compiler.shipped.model_counters import CACHE_HITS, CACHE_MISSES, Counters
else:
    from bls_values import OBJECT, array_of
    from model_counters import CACHE_HITS, CACHE_MISSES

ENTRY_BYTES = 512
"""What an entry costs beside its tensors, about."""
ELEMENT_BYTES = 40
"""What Python takes for a text beside its bytes, about."""

Key = bytes
Land = Callable[[Any, Any], None]
"""Tells a part that waited what came of the call: outputs, or None when it has to call itself."""


class Entry:
    """Outputs of one row, or of one call; `written` is when (time.monotonic) they came."""

    __slots__ = ("outputs", "size_bytes", "written")

    def __init__(self, outputs: Arrays, written: float) -> None:
        self.outputs, self.written = outputs, written
        self.size_bytes = ENTRY_BYTES + sum(_size(array) for array in outputs.values())


class Flight:
    """A call under way, `leader` sends it. `waiting` are parts that want the same."""

    __slots__ = ("leader", "waiting")

    def __init__(self, leader: Part) -> None:
        self.leader = leader
        self.waiting: list[tuple[Part, Land]] = []


class Cache:
    """What the requests of an instance share. Never holds more than `max_bytes`; what was used
    least lately goes first, and what is older than its node allows is not given.
    """

    def __init__(
        self, max_bytes: int, counters: Counters, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes, self._counters, self._clock = max_bytes, counters, clock
        self.used_bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._flights: dict[Key, Flight] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def split(self, node: Node, part: Part, said: bytes, land: Land) -> list[Part]:
        """The part as those that have their outputs, those to be called, whose answer `keep` takes
        or `forget` ends, and those that `waits` for a call of others: `land` is called for each.
        """
        keys = keys_of(node, part, said)
        with self._lock:
            now = self._clock()
            found = [self._fresh(key, node, now) for key in keys]
            open_, waits = self._missing(keys, found)
            parts = [
                *self._known(part, found),
                *self._called(part, open_, keys),
                *self._waiting(part, waits, keys, land),
            ]
        self._count(node, len(open_), len(keys))
        return parts

    def _count(self, node: Node, called: int, asked: int) -> None:
        for family, count in ((CACHE_HITS, asked - called), (CACHE_MISSES, called)):
            if count:
                self._counters.add(family, node.name, count)

    def _fresh(self, key: Key, node: Node, now: float) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now - entry.written >= (node.cache_s or 0):
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def _missing(
        self, keys: Sequence[Key], found: Sequence[Entry | None]
    ) -> tuple[list[int], list[int]]:
        """Places to be called, and those whose call is under way or in this very part."""
        open_: list[int] = []
        waits: list[int] = []
        seen: set[Key] = set()
        for place, (key, entry) in enumerate(zip(keys, found, strict=True)):
            if entry is None:
                is_known = key in seen or key in self._flights
                (waits if is_known else open_).append(place)
                seen.add(key)
        return open_, waits

    def _lead(self, part: Part, keys: list[Key]) -> None:
        part.keys = keys
        for key in keys:
            self._flights[key] = Flight(part)

    def _known(self, part: Part, found: Sequence[Entry | None]) -> list[Part]:
        entries = [(place, entry) for place, entry in enumerate(found) if entry is not None]
        if not entries:
            return []
        known = _piece(part, [place for place, _ in entries], found)
        known.is_found = True
        known.outputs = joined([entry.outputs for _, entry in entries])
        return [known]

    def _called(self, part: Part, places: list[int], keys: Sequence[Key]) -> list[Part]:
        if not places:
            return []
        called = _piece(part, places, keys)
        self._lead(called, [keys[place] for place in places])
        return [called]

    def _waiting(
        self, part: Part, places: list[int], keys: Sequence[Key], land: Land
    ) -> list[Part]:
        """Each on its own: they may wait for different calls."""
        parts = []
        for place in places:
            one = _piece(part, [place], keys)
            one.waits = one.is_found = True
            one.keys = [keys[place]]
            self._flights[keys[place]].waiting.append((one, land))
            parts.append(one)
        return parts

    def keep(self, part: Part, outputs: Arrays) -> None:
        """The answer to a part with `keys`: it is kept, and given to those who wait for it."""
        rows = [outputs] if len(part.keys) == 1 else rows_of(outputs, len(part.keys))
        now = self._clock()
        entries = [Entry(owned(row), now) for row in rows]
        landed = []
        with self._lock:
            for key, entry in zip(part.keys, entries, strict=True):
                self._put(key, entry)
                landed += [(waits, entry.outputs) for waits in self._end(key, part)]
        part.keys = []
        for (waiting, land), given in landed:
            land(waiting, given)

    def forget(self, part: Part) -> None:
        """A part with `keys` has no answer: those who wait for it call themselves."""
        with self._lock:
            waiting = [waits for key in part.keys for waits in self._end(key, part)]
        part.keys = []
        for other, land in waiting:
            land(other, None)

    def _end(self, key: Key, part: Part) -> list[tuple[Part, Land]]:
        flight = self._flights.get(key)
        if flight is None or flight.leader is not part:
            return []
        del self._flights[key]
        return flight.waiting

    def _put(self, key: Key, entry: Entry) -> None:
        if key in self._entries:
            self._drop(key)
        if entry.size_bytes > self.max_bytes:
            return
        while self.used_bytes + entry.size_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[key] = entry
        self.used_bytes += entry.size_bytes

    def _drop(self, key: Key) -> None:
        self.used_bytes -= self._entries.pop(key).size_bytes


def _piece(part: Part, places: list[int], keys: Sequence[Any]) -> Part:
    """What of a part goes by these of its keys: all of it where it has no more, be that one key
    for many rows.
    """
    return part if len(places) == len(keys) else part.some(places)


def keys_of(node: Node, part: Part, said: bytes) -> list[Key]:
    """One for each row (or item) of the part, or one for all of it."""
    arrays = {name: np.ascontiguousarray(array_of(part.inputs[name])) for name in part.inputs}
    by_row = node.is_by_row and part.batched
    start = sha256()
    for text in (*node.identity, said):
        _add(start, text)
    for name, array in sorted(arrays.items()):
        shape = array.shape[1:] if by_row else array.shape
        for text in (name.encode(), array.dtype.str.encode(), repr(shape).encode()):
            _add(start, text)
    ordered = [array for _, array in sorted(arrays.items())]
    if not by_row:
        return [_digest(start, ordered)]
    return [_digest(start, [array[row] for array in ordered]) for row in range(len(part.places))]


def _digest(start: Any, arrays: Iterable[Any]) -> Key:
    """Their shapes are in `start`, so only texts need their lengths."""
    hashed = start.copy()
    for array in arrays:
        if array.dtype == OBJECT:
            for element in array.ravel().tolist():
                _add(hashed, element if isinstance(element, bytes) else str(element).encode())
        else:
            hashed.update(array.data if array.ndim and array.size else array.tobytes())
    return Key(hashed.digest())


def _add(hashed: Any, text: bytes) -> None:
    hashed.update(len(text).to_bytes(8, "little"))
    hashed.update(text)


def rows_of(outputs: Arrays, count: int) -> list[Arrays]:
    """Each row of a batch as a batch of one."""
    arrays = {name: array_of(value) for name, value in outputs.items()}
    return [{name: array[row : row + 1] for name, array in arrays.items()} for row in range(count)]


def owned(outputs: Arrays) -> Arrays:
    """Copies that nobody changes: the memory of an answer goes with its request."""
    kept = {name: np.array(array_of(value)) for name, value in outputs.items()}
    for array in kept.values():
        array.flags.writeable = False
    return kept


def joined(rows: Sequence[Arrays]) -> Arrays:
    if len(rows) == 1:
        return rows[0]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _size(array: Any) -> int:
    if array.dtype != OBJECT:
        return int(array.nbytes)
    return sum(ELEMENT_BYTES + len(element) for element in array.ravel().tolist())
