"""The epoch of a model: part of every key, so that moving it puts all older answers out of reach.

It lives in the shared store. One that was lost there begins anew at the clock's microseconds,
beyond every number it has had: answers of before never come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from mmctl.cache.effects import Command, Reply, Store, StoreDown
from mmctl.cache.flight import Flights
from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore
from mmctl.effects import Steps

LIMIT_S = 1.0
"""How old what a process knows may be, at most."""

MAX_AGE_S = 0.5
"""At this age one caller asks again."""

UNKNOWN = "0"
"""Before the store has ever answered."""

ALL_MODELS = ""
"""Stands for a model where the answers of all are meant."""


class Epochs:
    """What one process knows of the epochs. Threads and tasks share it."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._known: dict[str, tuple[str, float]] = {}
        self._flights = Flights(clock)

    def of(self, model: str) -> Steps[str]:
        """The epoch of a model. While the store is down it is the one that was known last."""
        known = self._known.get(model)
        if known is not None:
            age_s = self._clock() - known[1]
            if age_s < MAX_AGE_S or (age_s < LIMIT_S and self._flights.under_way(model)):
                return known[0]
        try:
            # One asks for all, and while it does the others go on with what they know.
            epoch, _ = yield from self._flights.one(
                model, lambda: self._asked(model), is_final=lambda _: True
            )
        except StoreDown:
            return known[0] if known is not None else UNKNOWN
        return epoch

    def fresh(self, model: str) -> bool:
        """Whether the shared store may be used under what `of` said: it may have moved unseen
        while the store did not answer, and only what this process knows by itself is safe then.
        """
        known = self._known.get(model)
        return known is not None and self._clock() - known[1] < LIMIT_S

    def forget(self, model: str = "") -> None:
        """Ask at the next use: the epoch was moved from here."""
        for name in [model] if model else list(self._known):
            self._known.pop(name, None)

    def _asked(self, model: str) -> Steps[str]:
        now = self._clock()
        both = (names.epoch(), names.epoch(model))
        replies: list[Reply] = yield Store((("MGET", *both),))
        if None in replies[0]:
            replies = yield Store((*_begun(both, self._wall()), ("MGET", *both)))
        epoch = b".".join(replies[-1]).decode()
        self._known[model] = epoch, now  # as old as the question, not as the answer
        return epoch


def move_epoch(url: str, models: Iterable[str]) -> None:
    """No answer that was stored for these models before is given again (ALL_MODELS: for any).

    Other processes see it within a second. Raises StoreDown when the store does not answer: then
    nothing has moved, or it is not known what has.
    """
    store = SharedStore(url)
    try:
        if commands := moved(models, time.time()):
            store.run(*commands)
    finally:
        store.close()


def moved(models: Iterable[str], now_s: float) -> tuple[Command, ...]:
    """The commands that move the epochs of these models and tell of it."""
    listed = sorted(set(models))
    keys = [names.epoch(model) for model in listed]
    return (
        *_begun(keys, now_s),
        *(("INCR", key) for key in keys),
        *(("PUBLISH", names.EPOCHS, model) for model in listed),
    )


def _begun(keys: Iterable[str], now_s: float) -> tuple[Command, ...]:
    return tuple(("SET", key, int(now_s * 1e6), "NX") for key in keys)
