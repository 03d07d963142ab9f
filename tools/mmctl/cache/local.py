"""The answers that this process keeps, in a bounded number of bytes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from mmctl.cache.envelope import Entry
from mmctl.cache.eviction import Duel

ENTRY_BYTES = 700
"""Of an entry without its tensors: its objects, its key in four tables, its counts."""
OUTPUT_BYTES = 300
"""Of an output without its data: two array headers and its place."""
TEXT_BYTES = 40
"""Of a text beside its own bytes."""
LARGEST_SHARE = 8
"""An entry may have one part in so many of the room: a larger one would displace too much."""

Evicted = Callable[[str, Entry], None]


class LocalStore:
    """Entries by key, none longer than it may live, all together in `max_bytes`. For any number
    of threads.

    `clock` gives Unix seconds, as entries have them. `on_evicted` hears of each entry that left
    unasked, and why: "size", "ttl", or what `drop` was told. It is called under the lock: it may
    count, and nothing else.
    """

    def __init__(
        self,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
        on_evicted: Evicted = lambda reason, entry: None,
    ) -> None:
        self.max_bytes = max_bytes
        self._clock = clock
        self._on_evicted = on_evicted
        self._entries: dict[bytes, Entry] = {}
        self._bytes: Counter[str] = Counter()
        self._order = Duel(max_bytes)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        return self._order.used_bytes

    def bytes_by_model(self) -> dict[str, int]:
        with self._lock:
            return dict(self._bytes)

    def get(self, key: bytes) -> Entry | None:
        """The entry while it is alive; reading does not make it live longer."""
        with self._lock:
            self._order.asked(key)
            entry = self._entries.get(key)
            if entry is None or entry.is_alive(self._clock()):
                return entry
            self._leave(key, "ttl")
            return None

    def peek(self, key: bytes) -> Entry | None:
        """As `get`, for who has just asked: it does not count as wanted once more."""
        entry = self._entries.get(key)
        return entry if entry is not None and entry.is_alive(self._clock()) else None

    def put(self, key: bytes, entry: Entry, size: int | None = None) -> bool:
        """Whether it is kept: it may be too large, or less wanted than what is there. `size` is
        its weight, where that is known.
        """
        size = weight(entry) if size is None else size
        with self._lock:
            if size > self.max_bytes // LARGEST_SHARE:
                self._leave(key, "size")
                return False
            if (older := self._entries.get(key)) is not None:
                self._bytes[older.model] -= weight(older)
            self._entries[key] = entry
            self._bytes[entry.model] += size
            for gone in self._order.add(key, size):
                self._leave(gone, "size")
            return key in self._entries

    def drop(self, model: str | None = None, *, reason: str = "epoch") -> int:
        """Drop the entries of a model, or all; gives how many."""
        with self._lock:
            keys = [key for key, entry in self._entries.items() if model in (None, entry.model)]
            for key in keys:
                self._leave(key, reason)
        return len(keys)

    def _leave(self, key: bytes, reason: str) -> None:
        self._order.drop(key)
        if (entry := self._entries.pop(key, None)) is not None:
            self._bytes[entry.model] -= weight(entry)
            self._on_evicted(reason, entry)


def weight(entry: Entry) -> int:
    """The memory that an entry takes, at least."""
    size = ENTRY_BYTES + (0 if entry.vector is None else entry.vector.nbytes)
    for array in entry.outputs.values():
        size += OUTPUT_BYTES + array.nbytes
        if array.dtype.kind == "O":
            size += sum(TEXT_BYTES + _text_bytes(item) for item in array.ravel().tolist())
    return size


def _text_bytes(item: str | bytes) -> int:
    """A str of other than ASCII has a longer head, and up to four bytes for each character."""
    return len(item) if isinstance(item, bytes) or item.isascii() else 32 + 4 * len(item)
