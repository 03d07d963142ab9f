"""Who runs when: variants take turns, so that what slows the machine for a while slows all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from mmctl.errors import WorldError
from mmctl.trials.compare.table import Measured, Turn, Variant, best_batch

TURN_MS = 100
"""About how long a turn takes, and how many requests it has at least and at most."""
FEWEST, MOST = 3, 100
SEARCH_ROUNDS = 3
LOADS = 6


class VariantFails(Exception):
    """A variant cannot be loaded or run; the others can."""


class Player(Protocol):
    """A variant that is ready to run. All methods raise VariantFails."""

    def load(self) -> float:
        """Make a new session; returns milliseconds."""

    def run(self, batch: int, times: int) -> Turn:
        """Time so many requests; a batch of 0 is a request without batch axis."""

    def memory(self) -> int:
        """Peak so far in bytes, the process without a model left out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`batches` are those to choose the best from: one of them is no choice, and (0,) stands for
    a model without batch axis.
    """

    batches: Sequence[int]
    rounds: int

    @property
    def single(self) -> int:
        """The batch of a single request."""
        return min(1, *self.batches)


@dataclass(slots=True)
class _Seat:
    """One player and what it did so far. `times` is how many requests a turn has, by batch."""

    variant: Variant
    player: Player
    times: dict[int, int] = field(default_factory=dict)
    best: int = 0
    at_one: list[Turn] = field(default_factory=list)
    at_best: list[Turn] = field(default_factory=list)
    load_ms: list[float] = field(default_factory=list)
    memory_bytes: int = 0

    def turn(self, batch: int) -> Turn:
        return self.player.run(batch, self.times[batch])


def take_turns(
    players: Sequence[tuple[Variant, Player]], plan: Plan, note: Callable[[str], None]
) -> list[Measured]:
    """Measures all players; the first one is FP32, without which there is nothing to compare.

    Another one that fails is left out, with a note. Raises WorldError.
    """
    seats = _seated(players, plan, note)
    _search(seats, plan)
    for round_ in range(plan.rounds):
        for seat in _rotated(seats, round_):
            seat.at_one.append(seat.turn(plan.single))
        for seat in _rotated(seats, round_):
            if seat.best != plan.single:
                seat.at_best.append(seat.turn(seat.best))
    for seat in seats:
        seat.memory_bytes = seat.player.memory()
    for round_ in range(LOADS):
        for seat in _rotated(seats, round_):
            seat.load_ms.append(seat.player.load())
    return [_measured(seat) for seat in seats]


def _seated(
    players: Sequence[tuple[Variant, Player]], plan: Plan, note: Callable[[str], None]
) -> list[_Seat]:
    """Those that can be loaded and take every batch."""
    seats: list[_Seat] = []
    for variant, player in players:
        seat = _Seat(variant, player)
        try:
            player.load()
            for batch in {plan.single, *plan.batches}:
                seat.times[batch] = _times(player.run(batch, 1).p50_ms)
        except VariantFails as error:
            if not seats:
                raise WorldError(f"{variant.title} does not run here: {error}") from error
            note(f"{variant.title}: does not run here: {error}")
        else:
            seats.append(seat)
    return seats


def _times(ms: float) -> int:
    return max(FEWEST, min(MOST, round(TURN_MS / ms)))


def _search(seats: Sequence[_Seat], plan: Plan) -> None:
    """Give each its best batch; with one to choose from nothing runs."""
    if len(plan.batches) == 1:
        for seat in seats:
            seat.best = plan.batches[0]
        return
    found: dict[str, dict[int, float]] = {seat.variant.name: {} for seat in seats}
    for batch in plan.batches:
        tries: dict[str, list[float]] = {seat.variant.name: [] for seat in seats}
        for round_ in range(SEARCH_ROUNDS):
            for seat in _rotated(seats, round_):
                tries[seat.variant.name].append(batch / seat.turn(batch).p50_ms)
        for name, rates in tries.items():
            found[name][batch] = median(rates)
    for seat in seats:
        seat.best = best_batch(found[seat.variant.name])


def _rotated(seats: Sequence[_Seat], round_: int) -> list[_Seat]:
    """Everyone is first in turn."""
    start = round_ % len(seats)
    return [*seats[start:], *seats[:start]]


def _measured(seat: _Seat) -> Measured:
    return Measured(
        variant=seat.variant,
        best_batch=seat.best,
        at_one=seat.at_one,
        at_best=seat.at_best or seat.at_one,
        load_ms=seat.load_ms,
        memory_bytes=seat.memory_bytes,
    )
