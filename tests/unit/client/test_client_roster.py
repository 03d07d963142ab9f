"""Who gets the next request."""

from __future__ import annotations

from collections import Counter

import pytest
from clocks import Clock

from mmctl.client.roster import FIRST_ABSENCE_S, LONGEST_ABSENCE_S, Choice, Roster


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def roster(clock: Clock) -> Roster:
    return Roster(3, clock)


def chosen(roster: Roster, *tried: int) -> int:
    choice = roster.choose(tried)
    assert choice is not None
    assert not choice.probe
    return choice.number


def test_the_one_with_the_fewest_requests_is_chosen(roster: Roster) -> None:
    roster.begin(0)
    roster.begin(0)
    roster.begin(1)
    roster.begin(2)
    assert chosen(roster, 0, 1) == 2
    roster.begin(2)
    roster.begin(2)
    assert chosen(roster) == 1
    roster.end(0)
    roster.end(0)
    assert chosen(roster) == 0


def test_equals_take_turns(roster: Roster) -> None:
    asked: Counter[int] = Counter()
    for _ in range(30):
        number = chosen(roster)
        with roster.busy(number):
            asked[number] += 1
    assert asked == {0: 10, 1: 10, 2: 10}


def test_a_slow_one_gets_fewer(roster: Roster) -> None:
    """Every third request ends, those of number 0 never."""
    asked: Counter[int] = Counter()
    for _ in range(30):
        number = chosen(roster)
        asked[number] += 1
        roster.begin(number)
        if number:
            roster.end(number)
    assert asked[0] == 1


def test_who_is_gone_is_left_out_and_then_probed_by_one_request(
    roster: Roster, clock: Clock
) -> None:
    roster.gone(1)
    assert {chosen(roster), chosen(roster, 0)} == {0, 2}
    clock.now += FIRST_ABSENCE_S
    assert roster.choose(()) == Choice(1, probe=True)
    assert chosen(roster) != 1
    roster.here(1)
    assert chosen(roster, 0, 2) == 1


def test_who_is_still_gone_is_left_out_for_longer_each_time(roster: Roster, clock: Clock) -> None:
    roster.gone(1)
    absences = []
    for _ in range(8):
        before = clock.now
        while roster.choose((0, 2)) != Choice(1, probe=True):
            clock.now += 0.25
        roster.still_gone(1)
        absences.append(clock.now - before)
    assert absences == [0.5, 1, 2, 4, 8, 10, 10, 10]
    assert absences[-1] == LONGEST_ABSENCE_S


def test_requests_that_fail_together_are_one_absence(roster: Roster, clock: Clock) -> None:
    for _ in range(50):
        roster.gone(1)
    clock.now += FIRST_ABSENCE_S
    assert roster.choose(()) == Choice(1, probe=True)


def test_when_all_are_gone_the_one_expected_first_is_asked(roster: Roster, clock: Clock) -> None:
    for number in (2, 0, 1):
        roster.gone(number)
        clock.now += 0.1
    assert chosen(roster) == 2
    assert chosen(roster, 2) == 0
    assert roster.choose((0, 1, 2)) is None


def test_the_only_one_is_never_probed(clock: Clock) -> None:
    roster = Roster(1, clock)
    roster.gone(0)
    assert chosen(roster) == 0
    clock.now += 60
    assert chosen(roster) == 0


def test_a_sequence_has_one_home_in_every_process(roster: Roster) -> None:
    homes = [roster.home_of(sequence) for sequence in range(300)]
    assert homes == [Roster(3).home_of(sequence) for sequence in range(300)]
    assert min(Counter(homes).values()) > 60


def test_a_sequence_that_began_elsewhere_stays_there_until_it_ends(roster: Roster) -> None:
    home = roster.home_of("s")
    other = (home + 1) % 3
    roster.settle("s", other)
    assert roster.home_of("s") == other
    roster.leave("s")
    assert roster.home_of("s") == home
