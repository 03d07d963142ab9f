"""Which of several replicas gets the next request. Pure; the clock is given."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FIRST_ABSENCE_S = 0.5
LONGEST_ABSENCE_S = 10.0


@dataclass(slots=True)
class _Member:
    outstanding: int = 0
    absences: int = 0
    """In a row; 0 while it is there."""
    back_at: float = 0.0
    used: int = 0
    """When it was last chosen, in requests: equals take turns."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`probe`: it was gone, and must first show that it is there again."""

    number: int
    probe: bool = False


class Roster:
    """What a client knows of its replicas: how many requests each has, and who is gone.

    One that is gone is left out for FIRST_ABSENCE_S, for twice as long each time that it is still
    gone, LONGEST_ABSENCE_S at most. After that one request, and no other, is told to probe it.
    Threads and tasks may share a roster.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._members = [_Member() for _ in range(count)]
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = 0
        self._homes: dict[int | str | bool, int] = {}

    def choose(self, tried: Collection[int]) -> Choice | None:
        """Who is due to be probed, else who has the fewest requests, else, when all others are
        gone or `tried`, who is expected back first. None when all were tried.
        """
        with self._lock:
            left = [n for n in range(len(self._members)) if n not in tried]
            if not left:
                return None
            now = self._clock()
            members = self._members
            for number in left:
                if members[number].absences and members[number].back_at <= now:
                    members[number].back_at = now + _absence_s(members[number].absences)
                    return Choice(number, probe=len(members) > 1)
            here = [n for n in left if not members[n].absences]
            if here:
                return Choice(min(here, key=lambda n: (members[n].outstanding, members[n].used)))
            return Choice(min(left, key=lambda n: members[n].back_at))

    def begin(self, number: int) -> None:
        with self._lock:
            self._requests += 1
            self._members[number].outstanding += 1
            self._members[number].used = self._requests

    def end(self, number: int) -> None:
        with self._lock:
            self._members[number].outstanding -= 1

    @contextmanager
    def busy(self, number: int) -> Iterator[None]:
        """It has one request more within the block."""
        self.begin(number)
        try:
            yield
        finally:
            self.end(number)

    def here(self, number: int) -> None:
        """It has answered."""
        if self._members[number].absences:
            with self._lock:
                self._members[number].absences = 0

    def gone(self, number: int) -> None:
        """Nobody was there. Requests that fail together count as one absence."""
        with self._lock:
            member, now = self._members[number], self._clock()
            if not member.absences:
                member.absences = 1
                member.back_at = now + _absence_s(1)

    def still_gone(self, number: int) -> None:
        """A probe found nobody."""
        with self._lock:
            member = self._members[number]
            member.absences += 1
            member.back_at = self._clock() + _absence_s(member.absences)

    # A sequence stays with the server that has its state.

    def home_of(self, sequence: int | str | bool) -> int:
        """The same in every process, unless the sequence began elsewhere with this client."""
        if (home := self._homes.get(sequence)) is not None:
            return home
        return zlib.crc32(str(sequence).encode()) % len(self._members)

    def settle(self, sequence: int | str | bool, number: int) -> None:
        """It has begun there."""
        self.leave(sequence)
        if self.home_of(sequence) != number:
            self._homes[sequence] = number

    def leave(self, sequence: int | str | bool) -> None:
        """It has ended."""
        self._homes.pop(sequence, None)


def _absence_s(absences: int) -> float:
    return float(min(FIRST_ABSENCE_S * 2.0 ** (absences - 1), LONGEST_ABSENCE_S))
