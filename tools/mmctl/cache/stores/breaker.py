"""When to stop asking a store that does not answer, and when to try again. Pure but for a clock."""

from __future__ import annotations

import time
from collections.abc import Callable

FAILURES = 3
FIRST_PROBE_S = 0.25
LAST_PROBE_S = 4.0


class Breaker:
    """Opens after FAILURES failures in a row. Then nobody asks but a probe now and then, at first
    soon, later every LAST_PROBE_S; the first success closes it.

    Threads share it without a lock: the worst that can come of it is one probe more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause_s = FIRST_PROBE_S
        self._next_probe = 0.0

    @property
    def closed(self) -> bool:
        return self._failures < FAILURES

    def failed(self) -> None:
        self._failures += 1
        if self._failures == FAILURES:
            self._pause_s = FIRST_PROBE_S
            self._next_probe = self._clock() + self._pause_s

    def succeeded(self) -> None:
        self._failures = 0

    def probe_is_due(self) -> bool:
        """True for one caller at a time: that one has to probe."""
        now = self._clock()
        if self.closed or now < self._next_probe:
            return False
        self._pause_s = min(2 * self._pause_s, LAST_PROBE_S)
        self._next_probe = now + self._pause_s
        return True
