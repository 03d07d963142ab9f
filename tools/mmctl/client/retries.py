"""When a request is sent again, and how often: a pure state machine.

A request is sent again for one reason: nobody is there, which gRPC calls UNAVAILABLE. What Triton
itself answers is final, a full queue too (InferenceError): to ask an overloaded server again makes
it worse. A request whose time is over is not sent again either: the server may still work on it.

Two kinds of "again" are told apart. Asking another replica costs nothing: each is asked at most
once per round, and one that is gone is left out from then on. A further round, after a pause,
is what can add up when everything is down: it is paid from a budget that all requests of a client
share. So a server that is back finds at most a tenth more requests than usual, not a multiple.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """`rounds` more after the first, and pauses that begin at `pause_s` and double. `share` of the
    requests may be further rounds, and `reserve` of them beyond that.
    """

    rounds: int = 3
    pause_s: float = 0.1
    share: float = 0.1
    reserve: int = 10


RETRIES = Retries()
NO_RETRIES = Retries(rounds=0)


class Budget:
    """A bucket of tokens: a request puts in `share` of one, a further round takes one out. It is
    full at first and holds `reserve`. Threads may share it.
    """

    def __init__(
        self, retries: Retries = RETRIES, uniform: Callable[[], float] = random.random
    ) -> None:
        self._retries = retries
        self._uniform = uniform
        self._tokens = float(retries.reserve)
        self._lock = threading.Lock()

    def earn(self) -> None:
        """A request begins."""
        with self._lock:
            self._tokens = min(self._tokens + self._retries.share, self._retries.reserve)

    def pause(self, rounds_done: int, left_s: float | None) -> float | None:
        """Seconds to wait before the next round, which is paid for now; None where there must not
        be one: enough rounds, no time left for it, or no budget. `rounds_done` counts from 1.

        Half of a pause is by chance: callers that failed together do not come back together.
        """
        if rounds_done > self._retries.rounds:
            return None
        longest = self._retries.pause_s * 2.0 ** (rounds_done - 1)
        pause = longest * (1 + self._uniform()) / 2
        if left_s is not None and pause >= left_s:
            return None
        with self._lock:
            if self._tokens < 1:
                return None
            self._tokens -= 1
        return pause
