"""One computation for all who want the same at the same time, in threads and tasks of one process.

The first is the leader, the others wait for its answer. What comes of a leader that brings none:

- It was cancelled, or its own time was up: one of those who wait leads in its place.
- Its error says that the request is wrong: it is everybody's error.
- Any other error: one more tries, once. When that fails too, its error is everybody's: a model
  that is down is not asked by all of them in turn.

A thread whose event loop is to bring the answer cannot wait for it: it computes for itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from mmctl.cache.effects import Await
from mmctl.effects import Steps
from mmctl.errors import InferenceError, InputError, LateError

T = TypeVar("T")

TRIES = 2


def is_final(error: Exception) -> bool:
    """Whether the same request would get the same error again."""
    return isinstance(error, InputError) or (isinstance(error, InferenceError) and error.final)


class Flights:
    """What is under way. Threads and tasks share it; after a fork a process begins with none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin()

    def one(
        self,
        key: Hashable,
        compute: Callable[[], Steps[T]],
        *,
        deadline: float | None = None,
        is_final: Callable[[Exception], bool] = is_final,
        alone: Callable[[], Steps[T]] | None = None,
    ) -> Steps[tuple[T, bool]]:
        """The answer, and whether another caller has computed it.

        `deadline`, a time of the clock, is this caller's own. `alone` computes for a caller that
        nobody may wait for, and that may wait for nobody; without it that is `compute`. Raises
        LateError when the deadline passes while another computes, and what `compute` raises.
        """
        tries = 1
        while True:
            flight, landed = self._join(key, tries)
            if landed is None:
                return (yield from self._lead(key, flight, compute, is_final)), False
            left_s = remaining(deadline, self._clock())
            if not (yield Await(landed, left_s, flight.thread)):
                if remaining(deadline, self._clock()) == 0:
                    raise late()
                return (yield from (alone or compute)()), False
            match landed.result():
                case _Answer(value):
                    return value, True
                case _Failed(error):
                    raise own_copy(error)
                case _Left(tries):
                    pass

    def under_way(self, key: Hashable) -> bool:
        """Whether somebody computes it now."""
        return self._pid == os.getpid() and key in self._flights

    def _lead(
        self,
        key: Hashable,
        flight: _Flight,
        compute: Callable[[], Steps[T]],
        is_final: Callable[[Exception], bool],
    ) -> Steps[T]:
        outcome: _Outcome = _Left(flight.tries)
        try:
            answer = yield from compute()
            outcome = _Answer(answer)
        except Exception as error:
            is_own = isinstance(error, LateError)
            if is_final(error) or (flight.tries >= TRIES and not is_own):
                outcome = _Failed(error)
            elif not is_own:
                outcome = _Left(flight.tries + 1)
            raise
        finally:
            with self._lock:
                self._flights.pop(key, None)
            if flight.landed is not None:
                flight.landed.set_result(outcome)
        return answer

    def _join(self, key: Hashable, tries: int) -> tuple[_Flight, Future[_Outcome] | None]:
        """The flight for a key, and what to wait for; None: it is this caller's to lead."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if (flight := self._flights.get(key)) is not None:
                flight.landed = flight.landed or Future()
                return flight, flight.landed
            flight = self._flights[key] = _Flight(tries)
            return flight, None

    def _begin(self) -> None:
        """The leaders of a process that has forked are not in its child."""
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight] = {}
        self._pid = os.getpid()


def remaining(deadline: float | None, now: float) -> float | None:
    """Seconds until a deadline, 0 when it has passed; None where there is none."""
    return None if deadline is None else max(deadline - now, 0.0)


def own_copy(error: Exception) -> Exception:
    """For one who raises it: in one that all raise, each would leave its frames and what is in
    them.
    """
    try:
        own = copy(error)
    except Exception:  # noqa: BLE001 - whatever it is, it need not be one that can be copied
        return error
    return own if type(own) is type(error) else error


def late() -> LateError:
    return LateError(
        "no answer in time: the same request of another caller is still under way",
        hint="allow more time; the server may still be working on the request",
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    value: Any


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


@dataclass(frozen=True, slots=True)
class _Left:
    """Nobody has answered; `tries` is the count of who leads next."""

    tries: int


_Outcome: TypeAlias = _Answer | _Failed | _Left


@dataclass(slots=True)
class _Flight:
    tries: int
    landed: Future[_Outcome] | None = None
    """Made when somebody waits: most flights land alone."""
    thread: int = field(default_factory=threading.get_ident)
    """Where its leader is."""
