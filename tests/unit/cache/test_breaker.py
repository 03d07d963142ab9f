"""When a store that does not answer is left alone, and when it is asked again."""

from __future__ import annotations

import itertools

from clocks import Clock

from mmctl.cache.stores.breaker import FAILURES, LAST_PROBE_S, Breaker


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock)
    for _ in range(FAILURES):
        breaker.failed()
    return breaker


def test_three_failures_in_a_row_open_it() -> None:
    breaker = Breaker()
    breaker.failed()
    breaker.failed()
    assert breaker.closed
    breaker.succeeded()
    breaker.failed()
    breaker.failed()
    assert breaker.closed
    breaker.failed()
    assert not breaker.closed


def test_a_closed_one_wants_no_probe() -> None:
    assert not Breaker().probe_is_due()


def test_one_caller_at_a_time_probes_soon_at_first_then_less_often_but_within_10_s() -> None:
    clock = Clock(100.0)
    breaker = opened(clock)
    assert not breaker.probe_is_due()
    times = []
    for _ in range(3000):
        clock.now += 0.01
        if breaker.probe_is_due():
            assert not breaker.probe_is_due()
            breaker.failed()
            times.append(clock.now)
    assert times[0] - 100.0 < 0.3
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert max(gaps) <= LAST_PROBE_S + 0.02 < 10


def test_a_success_closes_it_and_the_next_outage_begins_anew() -> None:
    clock = Clock(100.0)
    breaker = opened(clock)
    for _ in range(10):
        clock.now += 10
        assert breaker.probe_is_due()
    breaker.succeeded()
    assert breaker.closed
    for _ in range(FAILURES):
        breaker.failed()
    clock.now += 0.3
    assert breaker.probe_is_due()
