"""How often a request is sent again: rounds, pauses, and the budget of all requests together."""

from __future__ import annotations

import pytest

from mmctl.client.retries import NO_RETRIES, Budget, Retries


def budget(retries: Retries = Retries(), chance: float = 1.0) -> Budget:  # noqa: B008
    return Budget(retries, uniform=lambda: chance)


@pytest.mark.parametrize(("chance", "pauses"), [(1, [0.1, 0.2, 0.4]), (0, [0.05, 0.1, 0.2])])
def test_pauses_double_and_half_of_each_is_by_chance(chance: float, pauses: list[float]) -> None:
    known = budget(chance=chance)
    given = [known.pause(done, None) for done in (1, 2, 3)]
    assert given == pytest.approx(pauses)
    assert known.pause(4, None) is None


def test_no_pause_is_longer_than_what_is_left() -> None:
    assert budget().pause(1, 0.1) is None
    assert budget().pause(1, 0.11) == pytest.approx(0.1)


def test_without_retries_there_is_one_round() -> None:
    assert budget(NO_RETRIES).pause(1, None) is None


def test_further_rounds_are_a_tenth_of_the_requests_and_a_reserve() -> None:
    known = budget()
    rounds = 0
    for _ in range(1000):
        known.earn()
        rounds += known.pause(1, None) is not None
    assert rounds == 10 + 99


def test_a_quiet_time_saves_no_more_than_the_reserve() -> None:
    known = budget(Retries(reserve=3))
    for _ in range(1000):
        known.earn()
    assert [known.pause(1, None) is not None for _ in range(5)] == [True] * 3 + [False] * 2


def test_a_pause_that_is_too_long_costs_nothing() -> None:
    known = budget(Retries(reserve=1))
    assert known.pause(1, 0.01) is None
    assert known.pause(1, None) is not None
