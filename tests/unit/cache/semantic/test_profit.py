"""When a level that costs more than it saves rests, and for how long."""

from __future__ import annotations

from mmctl.cache.semantic.profit import LONGEST_PAUSE, LOOKUPS, MARGIN, PAUSE, Profit


def asked(profit: Profit, times: int, *, hit: bool, model_ms: float = 10.0) -> int:
    """How many of the requests looked."""
    looked = 0
    for _ in range(times):
        if profit.pays(model_ms, 2.0):
            looked += 1
            profit.add(hit)
    return looked


def test_what_never_hits_rests_after_a_thousand_lookups() -> None:
    assert asked(Profit(), PAUSE, hit=False) == LOOKUPS


def test_it_is_tried_again_after_ever_longer_pauses() -> None:
    profit = Profit()
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE, 8 * PAUSE, LONGEST_PAUSE, LONGEST_PAUSE):
        assert asked(profit, LOOKUPS + pause, hit=False) == LOOKUPS
    assert asked(profit, LOOKUPS, hit=True) == LOOKUPS


def test_what_pays_goes_on() -> None:
    assert asked(Profit(), 5 * LOOKUPS, hit=True) == 5 * LOOKUPS


def test_it_must_save_more_than_it_costs() -> None:
    rate = MARGIN * 2 / 10
    for share, pays in ((rate + 0.01, True), (rate - 0.01, False)):
        profit = Profit()
        for number in range(LOOKUPS):
            profit.add(number < share * LOOKUPS)
        assert profit.pays(10.0, 2.0) == pays


def test_a_fast_model_needs_no_cache() -> None:
    assert asked(Profit(), 2 * LOOKUPS, hit=True, model_ms=1.0) == LOOKUPS


def test_all_misses_are_cheap_in_the_long_run() -> None:
    requests = 1_000_000
    assert asked(Profit(), requests, hit=False) < 0.015 * requests
