"""Which answers stay when room is short: a duel of recency and frequency. Pure.

Least recently used (LRU) is best for bursts and sessions; W-TinyLFU, which lets a newcomer in only
when it was asked for more often than what it would displace, is best for popularity that lasts.
Neither is good for both. So both are played in small on a sample of the keys, and the cache does
what the winner does: a switch changes only how large a share newcomers have.
"""

from __future__ import annotations

import struct
from collections import OrderedDict

RECENT_SHARE = 0.01
"""What newcomers have of the room under W-TinyLFU; under LRU they have all."""
PROTECTED_SHARE = 0.8
"""Of the rest: for what was asked for again."""
SAMPLE = 4
"""One key in so many plays in the duel."""
MEMORY = 2000
"""Duel results fade: the older half counts half after so many sampled requests."""
MARGIN = 0.02
"""The other side must be better by this share of the requests before the cache switches."""
CLEAR = 0.05
"""A lead counts no more than this, or traffic that has changed would be noticed late."""
COUNTERS = 8
"""Of frequency: so many per key and row, or keys share too many of them."""
FADE = 2
"""Frequencies are halved after so many requests per counter of a row."""
STRIDE = 8
"""So many newcomers are settled at a time: a switch takes a while and never long."""

_WORDS = struct.Struct("<4I")


class Frequency:
    """How often keys were asked for lately, at most 15 times; too high now and then, never too
    low. A count-min sketch with 4 rows; it grows with the number of keys that are kept.
    """

    def __init__(self) -> None:
        self._width = 1024
        self._rows = [bytearray(self._width) for _ in range(4)]
        self._added = 0

    def add(self, key: bytes) -> None:
        mask = self._width - 1
        a, b, c, d = _WORDS.unpack_from(key)
        one, two, three, four = self._rows  # one after the other: a loop takes twice as long
        if (count := one[a & mask]) < 15:
            one[a & mask] = count + 1
        if (count := two[b & mask]) < 15:
            two[b & mask] = count + 1
        if (count := three[c & mask]) < 15:
            three[c & mask] = count + 1
        if (count := four[d & mask]) < 15:
            four[d & mask] = count + 1
        self._added += 1
        if self._added >= FADE * self._width:
            self._rows = [row.translate(_HALVES) for row in self._rows]
            self._added //= 2

    def of(self, key: bytes) -> int:
        mask = self._width - 1
        words: tuple[int, ...] = _WORDS.unpack_from(key)
        return min(row[word & mask] for row, word in zip(self._rows, words, strict=True))

    def fit(self, keys: int) -> None:
        """Room for so many keys. A wider row is the same row twice: no count is lost."""
        while self._width < COUNTERS * keys:
            self._rows = [row + row for row in self._rows]
            self._width *= 2


_HALVES = bytes(count >> 1 for count in range(256))


class Segments:
    """Keys in the order in which they leave: `recent`, then `probation` and `protected`.

    `recent_share` 1.0 is plain LRU. Keys are digests of at least 16 bytes; sizes are in bytes.
    """

    def __init__(self, max_bytes: int, recent_share: float) -> None:
        self.max_bytes = max_bytes
        self.recent_share = recent_share
        self.used_bytes = 0
        self._sizes: tuple[OrderedDict[bytes, int], ...] = (
            OrderedDict(),
            OrderedDict(),
            OrderedDict(),
        )
        self._used = [0, 0, 0]

    def __len__(self) -> int:
        return sum(len(segment) for segment in self._sizes)

    def __contains__(self, key: bytes) -> bool:
        return any(key in segment for segment in self._sizes)

    def touch(self, key: bytes) -> bool:
        """Whether it is kept; then it has just been used."""
        recent, probation, protected = self._sizes
        if key in recent:
            recent.move_to_end(key)
        elif key in protected and self.recent_share < 1:
            protected.move_to_end(key)
        elif key in probation or key in protected:
            self._promote(key)
        else:
            return False
        return True

    def add(self, key: bytes, size: int, frequency: Frequency) -> list[bytes]:
        """Keep a new key; gives the keys that leave for it, which may be the key itself."""
        if size > self.max_bytes:
            return [key]
        self._push(_RECENT, key, size)
        gone: list[bytes] = []
        if self.recent_share < 1:
            allowed = self.max_bytes * self.recent_share
            for _ in range(STRIDE):
                if self._used[_RECENT] <= allowed or len(self._sizes[_RECENT]) < 2:
                    break
                self._settle(*self._pop_oldest(_RECENT), frequency, gone)
        while self.used_bytes > self.max_bytes:
            gone.append(self._pop_oldest(self._first_to_leave())[0])
        return gone

    def drop(self, key: bytes) -> None:
        for number, segment in enumerate(self._sizes):
            if key in segment:
                self._pop(number, key)

    def _settle(self, key: bytes, size: int, frequency: Frequency, gone: list[bytes]) -> None:
        """A key that is no newcomer any more: it stays when it is asked for more often than all
        that would have to leave for it.
        """
        short = self.used_bytes + size - self.max_bytes
        victims: list[bytes] = []
        worth = 0
        mine = frequency.of(key)
        for segment in (_PROBATION, _PROTECTED):
            for victim, victim_size in self._sizes[segment].items():
                if short <= 0:
                    break
                worth += frequency.of(victim)
                if worth >= mine:
                    gone.append(key)
                    return
                victims.append(victim)
                short -= victim_size
        for victim in victims:
            self.drop(victim)
        gone.extend(victims)
        self._push(_PROBATION, key, size)

    def _promote(self, key: bytes) -> None:
        """Asked for again: into `protected`, or to the newest under LRU."""
        number = _PROBATION if key in self._sizes[_PROBATION] else _PROTECTED
        size = self._pop(number, key)
        if self.recent_share >= 1:
            self._push(_RECENT, key, size)
            return
        self._push(_PROTECTED, key, size)
        allowed = self.max_bytes * (1 - self.recent_share) * PROTECTED_SHARE
        while self._used[_PROTECTED] > allowed and len(self._sizes[_PROTECTED]) > 1:
            self._push(_PROBATION, *self._pop_oldest(_PROTECTED))

    def _first_to_leave(self) -> int:
        return next(n for n in (_PROBATION, _PROTECTED, _RECENT) if self._sizes[n])

    def _push(self, number: int, key: bytes, size: int) -> None:
        self._sizes[number][key] = size
        self._used[number] += size
        self.used_bytes += size

    def _pop(self, number: int, key: bytes) -> int:
        size = self._sizes[number].pop(key)
        self._used[number] -= size
        self.used_bytes -= size
        return size

    def _pop_oldest(self, number: int) -> tuple[bytes, int]:
        key = next(iter(self._sizes[number]))
        return key, self._pop(number, key)


_RECENT, _PROBATION, _PROTECTED = range(3)


class Duel:
    """The keys that are kept in `max_bytes`, and which leave for a new one. Not for two threads."""

    def __init__(self, max_bytes: int) -> None:
        self._kept = Segments(max_bytes, RECENT_SHARE)
        self._frequency = Frequency()
        self._by_recency = Segments(max_bytes // SAMPLE, 1.0)
        self._by_frequency = Segments(max_bytes // SAMPLE, RECENT_SHARE)
        self._lead = 0.0
        """Of recency over frequency: hits per sampled request, faded."""

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: bytes) -> bool:
        return key in self._kept

    @property
    def used_bytes(self) -> int:
        return self._kept.used_bytes

    @property
    def favours_recency(self) -> bool:
        return self._kept.recent_share >= 1

    def asked(self, key: bytes) -> bool:
        """A key was asked for; gives whether it is kept."""
        self._frequency.add(key)
        if key[-1] % SAMPLE == 0:
            self._play(key)
        return self._kept.touch(key)

    def add(self, key: bytes, size: int) -> list[bytes]:
        """Keep a new key; gives what leaves for it, which may be the key itself."""
        self._kept.drop(key)
        if key[-1] % SAMPLE == 0:
            for side in (self._by_recency, self._by_frequency):
                if key not in side:
                    side.add(key, size, self._frequency)
        gone = self._kept.add(key, size, self._frequency)
        self._frequency.fit(len(self._kept))
        return gone

    def drop(self, key: bytes) -> None:
        self._kept.drop(key)

    def _play(self, key: bytes) -> None:
        recency, frequency = self._by_recency.touch(key), self._by_frequency.touch(key)
        lead = self._lead + (recency - frequency - self._lead) / MEMORY
        self._lead = max(-CLEAR, min(lead, CLEAR))
        if self._lead > MARGIN:
            self._kept.recent_share = 1.0
        elif self._lead < -MARGIN:
            self._kept.recent_share = RECENT_SHARE
