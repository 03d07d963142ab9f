"""One computation for all processes that share a store: whoever holds the lease of a key computes.

A lease ends by itself, so that a process that died holds up nobody for longer than TERM_S; while
its holder computes, a thread renews it. Each has a number greater than all before it, and only the
holder of the number may store the answer or give the lease back: one that lost it changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from mmctl.cache.effects import Asked, Command, Pause, Store, StoreDown
from mmctl.cache.flight import late, remaining
from mmctl.cache.stores import names
from mmctl.effects import Steps

T = TypeVar("T")

TERM_S = 2.0

SHORTEST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.1
PAUSE_SHARE = 0.1
"""Of what one has waited: that much later than it is there an answer is seen, at most."""

IDLE_ROUNDS = 30
"""The thread that renews ends after so many rounds without work."""

_FIND = """
-- ARGV: term in ms, SHA-1 of an answer that cannot be read or ''
local found = redis.call('GET', KEYS[1])
if found and (ARGV[2] == '' or redis.sha1hex(found) ~= ARGV[2]) then return found end
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local number = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[2], number, 'PX', ARGV[1])
return number
"""
_FILL = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return redis.call('DEL', KEYS[1])
"""
_GIVE_BACK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""


class Sealed(NamedTuple):
    """An answer as the store keeps it, and for how long."""

    raw: bytes
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to compute the answer of a key."""

    key: bytes
    number: int


class Leases:
    """The leases of one process. Threads and tasks share it."""

    def __init__(
        self,
        store: Asked,
        *,
        term_s: float = TERM_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store` is what the thread that renews them asks."""
        self._term_ms = max(int(term_s * 1000), 1)
        self._clock = clock
        self._keeper = _Keeper(store, self._term_ms)

    def one(
        self,
        key: bytes,
        compute: Callable[[], Steps[T]],
        *,
        seal: Callable[[T], Sealed | None],
        unseal: Callable[[bytes], T | None],
        deadline: float | None = None,
    ) -> Steps[tuple[T, bool]]:
        """The answer of a key, and whether it comes from the store.

        Looks there once more, computes under a lease and stores what `seal` makes of it, or waits
        for whoever has the lease. What `unseal` cannot read is computed and written anew. Without
        a store that answers it computes. Raises what `compute` raises, and LateError when
        `deadline`, a time of the clock, passes while another process computes.
        """
        began = self._clock()
        unreadable = ""
        while True:
            try:
                reply = (yield Store((self._find(key, unreadable),)))[0]
            except StoreDown:
                return (yield from compute()), False
            if isinstance(reply, bytes):
                if (found := unseal(reply)) is not None:
                    return found, True
                unreadable = hashlib.sha1(reply, usedforsecurity=False).hexdigest()
            elif reply:
                return (yield from self._under(Lease(key, reply), compute, seal)), False
            else:
                now = self._clock()
                left = remaining(deadline, now)
                if left == 0:
                    raise late()
                pause_s = pause(now - began)
                yield Pause(pause_s if left is None else min(pause_s, left))

    def close(self) -> None:
        """Give back what is held, soon and in the background."""
        self._keeper.close()

    def _under(
        self, lease: Lease, compute: Callable[[], Steps[T]], seal: Callable[[T], Sealed | None]
    ) -> Steps[T]:
        self._keeper.keep(lease)
        try:
            answer = yield from compute()
            sealed = seal(answer)
        except BaseException:  # cancelled or closed, too: then there is nobody to ask the store
            self._keeper.give_back(lease)
            raise
        self._keeper.drop(lease)
        with suppress(StoreDown):
            yield Store((_give_back(lease) if sealed is None else _fill(lease, sealed),))
        return answer

    def _find(self, key: bytes, unreadable: str) -> Command:
        keys = (names.entry(key), names.lease(key), names.FENCE)
        return ("EVAL", _FIND, 3, *keys, self._term_ms, unreadable)


def pause(waited_s: float) -> float:
    """How long to wait before the next look."""
    return min(max(PAUSE_SHARE * waited_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)


class _Keeper:
    """Renews leases, and gives back those whose holder has failed, in a thread of its own that
    lives while there is work. Nothing is locked: should a lease come just when the thread ends,
    it is not renewed, and its end is early.
    """

    def __init__(self, store: Asked, term_ms: int) -> None:
        self._store, self._term_ms = store, term_ms
        self._begin()

    def keep(self, lease: Lease) -> None:
        if self._pid != os.getpid():
            self._begin()
        self._held[lease] = None
        if not self._thread.is_alive():
            self._start()

    def drop(self, lease: Lease) -> None:
        self._held.pop(lease, None)

    def give_back(self, lease: Lease) -> None:
        self.drop(lease)
        self._leaving.append(lease)
        self._wake.set()
        if not self._thread.is_alive():
            self._start()

    def close(self) -> None:
        for lease in list(self._held):
            self.give_back(lease)

    def _begin(self) -> None:
        """Nothing is held; what a process holds that has forked is not its child's."""
        self._held: dict[Lease, None] = {}
        self._leaving: deque[Lease] = deque()
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread = threading.Thread()
        self._pid = os.getpid()

    def _start(self) -> None:
        with self._starting:
            if not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="mmctl-leases", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        idle = 0
        while idle < IDLE_ROUNDS:
            self._wake.wait(self._term_ms / 3000)
            self._wake.clear()
            commands = [_give_back(lease) for lease in self._taken()]
            commands += [_renew(lease, self._term_ms) for lease in list(self._held)]
            idle = 0 if commands else idle + 1
            if commands:
                with suppress(StoreDown):
                    self._store.run(*commands)

    def _taken(self) -> list[Lease]:
        return [self._leaving.popleft() for _ in range(len(self._leaving))]


def _fill(lease: Lease, sealed: Sealed) -> Command:
    keys = (names.lease(lease.key), names.entry(lease.key))
    return ("EVAL", _FILL, 2, *keys, lease.number, sealed.raw, sealed.ttl_ms)


def _give_back(lease: Lease) -> Command:
    return ("EVAL", _GIVE_BACK, 1, names.lease(lease.key), lease.number)


def _renew(lease: Lease, term_ms: int) -> Command:
    return ("EVAL", _RENEW, 1, names.lease(lease.key), lease.number, term_ms)
