"""Threads that make calls, and one that keeps the time.

Part of the runner of the bls form (model.py).
"""

from __future__ import annotations

import heapq
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Pool:
    """Threads for calls: as many as there is work for, up to `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self.count = 0

    def submit(self, work: Callable[[], Any]) -> None:
        """`work` returns what the same thread does next, or None."""
        with self._lock:
            is_new = not self._idle and self.count < self._limit
            self.count += is_new
            self._idle -= self._idle > 0
        self._work.put(work)
        if is_new:
            threading.Thread(target=self._loop, daemon=True).start()

    def _loop(self) -> None:
        while True:
            work: Callable[[], Any] | None = self._work.get()
            while work is not None:
                work = guarded(work)
            with self._lock:
                self._idle += 1


class Alarm:
    """Something that happens at its time, unless it is stopped before."""

    __slots__ = ("fire",)

    def __init__(self, fire: Callable[[], Any]) -> None:
        self.fire: Callable[[], Any] | None = fire

    def stop(self) -> None:
        self.fire = None


class Timers:
    """Calls functions at their time (time.monotonic), from one thread of their own."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._changed = threading.Condition(threading.Lock())
        self._count = 0

    def at(self, when: float, fire: Callable[[], Any]) -> Alarm:
        alarm = Alarm(fire)
        with self._changed:
            if not self._count:
                threading.Thread(target=self._loop, daemon=True).start()
            self._count += 1
            heapq.heappush(self._heap, (when, self._count, alarm))
            if self._heap[0][1] == self._count:
                self._changed.notify()
        return alarm

    def soon(self, fire: Callable[[], Any]) -> None:
        """For what must not run in the calling thread, which holds a lock."""
        self.at(0.0, fire)

    def _loop(self) -> None:
        while True:
            for alarm in self._due():
                if alarm.fire is not None:
                    guarded(alarm.fire)

    def _due(self) -> list[Alarm]:
        """Waits for the first; stopped ones go on the way, so that they wake nobody."""
        with self._changed:
            while True:
                now, due = time.monotonic(), []
                while self._heap and (self._heap[0][0] <= now or self._heap[0][2].fire is None):
                    due.append(heapq.heappop(self._heap)[2])
                if due:
                    return due
                self._changed.wait(self._heap[0][0] - now if self._heap else None)


def guarded(work: Callable[[], Any]) -> Any:
    """What `work` returns. A thread that others wait for outlives whatever it raises."""
    try:
        return work()
    except Exception:  # noqa: BLE001 - told on the server's log
        traceback.print_exc()
        return None
