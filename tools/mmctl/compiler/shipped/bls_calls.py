"""Calls under way: how many a node may have, and whether its model is worth asking.

Part of the runner of the bls form (model.py). An attempt is one call: `dropped` says that nobody
waits for its answer any more, `overdue` when (time.monotonic) it should have come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

RETRY_TOKENS = 10.0
"""Tries beyond the first cost one token, a call earns a tenth: one retry in ten calls."""
UNHEALTHY_ANSWERS = 3
"""So many in a row open the breaker: each costs the second that Triton waits for a dead stub."""
OPEN_S = 1.0
"""An open breaker lets one call through after so long."""
KINDS = ("error", "unavailable", "unhealthy", "saturated", "timeout", "deadline", "quorum")
"""Of errors, as metrics and provenance tell them."""
RETRIED = ("unavailable", "unhealthy")
"""Kinds of errors after which another try may help."""


class NodeError(Exception):
    """Why a node has no value. `kind` is one of KINDS; `code` is Triton's own, where the answer of
    a model had one.
    """

    def __init__(self, message: str, kind: str = "error", code: Any = None) -> None:
        super().__init__(message)
        self.kind, self.code = kind, code


def error_of(problem: BaseException) -> NodeError:
    """Whatever was raised, as the reason why a node has no value."""
    if isinstance(problem, NodeError):
        return problem
    return NodeError(f"{type(problem).__name__}: {problem}")


class Slots:
    """What the requests of an instance share of one node. `count` calls may be under way.

    A call that waits is served in turn. Nobody waits while all slots are held by calls that were
    given up on and are overdue: their model hangs.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.late_total = 0
        """Answers that came when nobody waited for them any more."""
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        self._queue: deque[Any] = deque()
        self._tokens = RETRY_TOKENS
        self._unhealthy = 0
        self._opened: float | None = None

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._queue

    def admit(self, attempt: Any, *, is_first: bool) -> bool:
        """Whether the attempt has a slot now; else it waits for one. Raises NodeError when there
        is no point in waiting. A first try earns a tenth of a retry.
        """
        with self._lock:
            if is_first:
                self._tokens = min(RETRY_TOKENS, self._tokens + 0.1)
            if self._opened is not None:
                self._probe()
            if len(self._running) < self.count:
                self._running.add(attempt)
                return True
            if self._hangs():
                raise self._saturated()
            self._queue.append(attempt)
            return False

    def _probe(self) -> None:
        """One call may try a breaker that was open for long enough."""
        now = time.monotonic()
        if self._opened is not None and now - self._opened < OPEN_S:
            raise NodeError("not healthy in its last calls, so it is not asked", "unhealthy")
        self._opened = now

    def _hangs(self) -> bool:
        now = time.monotonic()
        late = [call for call in self._running if call.dropped and call.overdue <= now]
        return len(late) >= self.count

    def _saturated(self) -> NodeError:
        return NodeError(f"saturated: all {self.count} calls under way are late", "saturated")

    def finish(self, attempt: Any, error: NodeError | None) -> tuple[list[Any], list[Any]]:
        """A call is over, with `error` or an answer. Returns those that waited and have a slot
        now; and those that will not be answered in time: all, when this one opens the breaker.
        """
        with self._lock:
            self._running.discard(attempt)
            return self._judge(error), self._next()

    def free(self, attempt: Any) -> list[Any]:
        """A call was given up before it was sent. Returns those that have a slot now."""
        with self._lock:
            self._running.discard(attempt)
            return self._next()

    def _next(self) -> list[Any]:
        started = []
        while self._queue and len(self._running) < self.count:
            following = self._queue.popleft()
            if not following.dropped:
                self._running.add(following)
                started.append(following)
        return started

    def _judge(self, error: NodeError | None) -> list[Any]:
        """What an answer says about the model."""
        if error is None or error.kind != "unhealthy":
            self._unhealthy, self._opened = 0, None
            return []
        self._unhealthy += 1
        if self._unhealthy < UNHEALTHY_ANSWERS:
            return []
        self._opened = time.monotonic()
        return [*self._running, *self._waiting()]

    def _waiting(self) -> list[Any]:
        """All that wait, and from now on do not."""
        waiting, self._queue = list(self._queue), deque()
        return waiting

    def drop(self, attempt: Any) -> tuple[list[Any], NodeError]:
        """Nobody waits for this call any more. Returns those that now wait in vain, and why."""
        with self._lock:
            attempt.dropped = True
            return self._waiting() if self._hangs() else [], self._saturated()

    def count_late(self) -> None:
        with self._lock:
            self.late_total += 1

    def pay(self) -> bool:
        """Whether a retry is within the budget."""
        with self._lock:
            affordable = self._tokens >= 1
            self._tokens -= affordable
            return affordable
