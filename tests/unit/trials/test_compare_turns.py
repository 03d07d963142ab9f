"""Variants take turns: who runs when, how often, and what becomes of one that cannot."""

from __future__ import annotations

from collections import Counter

import pytest

from mmctl.errors import WorldError
from mmctl.trials.compare.table import Measured, Turn, Variant
from mmctl.trials.compare.turns import FEWEST, LOADS, MOST, Plan, VariantFails, take_turns

Diary = list[tuple[str, str, int]]
"""Who did what, with which batch."""


class FakePlayer:
    """Takes `ms` for a row, and `call_ms` for a request beside its rows."""

    def __init__(
        self, name: str, diary: Diary, *, ms: float = 1, call_ms: float = 9, most: int = 1000
    ) -> None:
        self.name, self.diary, self.ms, self.call_ms, self.most = name, diary, ms, call_ms, most

    def load(self) -> float:
        self.diary.append((self.name, "load", 0))
        return 5.0

    def run(self, batch: int, times: int) -> Turn:
        if batch > self.most:
            raise VariantFails(f"no batch of {batch}")
        self.diary.append((self.name, "run", batch))
        ms = self.call_ms + self.ms * batch
        return Turn((ms,) * times, ms * times)

    def memory(self) -> int:
        self.diary.append((self.name, "memory", 0))
        return 1000


def play(players: list[FakePlayer], plan: Plan) -> tuple[list[Measured], list[str]]:
    notes: list[str] = []
    seated = [(Variant(p.name, p.name.upper(), "fp32", "", 1), p) for p in players]
    return take_turns(seated, plan, notes.append), notes


def test_every_round_has_every_variant_and_each_is_first_in_turn() -> None:
    diary: Diary = []
    play([FakePlayer(name, diary) for name in "abc"], Plan((8,), rounds=6))
    single = [who for who, what, batch in diary if (what, batch) == ("run", 1)][3:]
    rounds = ["".join(single[start : start + 3]) for start in range(0, len(single), 3)]
    assert rounds == ["abc", "bca", "cab", "abc", "bca", "cab"]


def test_each_variant_gets_the_batch_that_is_best_for_it() -> None:
    diary: Diary = []
    steady = FakePlayer("a", diary)
    small = FakePlayer("b", diary)
    small.run = lambda batch, times: Turn((batch**1.5,) * times, 1.0)  # type: ignore[method-assign]
    (first, second), _ = play([steady, small], Plan((1, 2, 4, 8), rounds=10))
    assert (first.best_batch, second.best_batch) == (8, 1)
    assert second.at_best == second.at_one


def test_with_one_batch_to_choose_from_there_is_no_search() -> None:
    diary: Diary = []
    ((measured), _) = play([FakePlayer("a", diary)], Plan((4,), rounds=10))
    assert measured[0].best_batch == 4
    assert Counter(batch for _, what, batch in diary if what == "run") == {1: 11, 4: 11}


def test_a_model_without_batch_axis_is_only_sent_single_requests() -> None:
    diary: Diary = []
    (measured,), _ = play([FakePlayer("a", diary)], Plan((0,), rounds=10))
    assert measured.best_batch == 0
    assert {batch for _, _, batch in diary} == {0}


def test_memory_is_read_after_the_largest_batch_and_before_sessions_are_made_again() -> None:
    diary: Diary = []
    play([FakePlayer("a", diary)], Plan((1, 2, 4), rounds=10))
    read = diary.index(("a", "memory", 0))
    assert ("a", "run", 4) in diary[:read]
    assert diary[read + 1 :] == [("a", "load", 0)] * LOADS


@pytest.mark.parametrize(
    ("ms", "times"),
    [
        pytest.param(2000, FEWEST, id="slow: a few"),
        pytest.param(10, 10, id="as many as fit a turn"),
        pytest.param(0.01, MOST, id="fast: not too many"),
    ],
)
def test_a_turn_has_as_many_requests_as_fit_into_it(ms: float, times: int) -> None:
    (measured,), _ = play([FakePlayer("a", [], ms=0, call_ms=ms)], Plan((1,), rounds=10))
    assert {len(turn.ms) for turn in measured.at_one} == {times}


def test_a_variant_that_cannot_take_a_batch_is_left_out_and_noted() -> None:
    diary: Diary = []
    players = [FakePlayer("a", diary), FakePlayer("b", diary, most=2), FakePlayer("c", diary)]
    measured, notes = play(players, Plan((1, 2, 4), rounds=10))
    assert [one.variant.name for one in measured] == ["a", "c"]
    assert notes == ["B: does not run here: no batch of 4"]


def test_without_fp32_there_is_nothing_to_compare() -> None:
    with pytest.raises(WorldError, match="A does not run here: no batch of 4"):
        play([FakePlayer("a", [], most=2), FakePlayer("b", [])], Plan((1, 2, 4), rounds=10))
