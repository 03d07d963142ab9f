"""Which answers stay: measured on five kinds of traffic, each with a fixed seed.

The traces are those that libraries were measured on: 1,000 places, up to 100,000 different keys.
What theine, a W-TinyLFU, hits of each is written beside it; `scripts/bench_cache eviction` runs it.
"""

from __future__ import annotations

import pytest
from cache_traces import TRACES, duel_hits, key_of, lru_hits
from hypothesis import given
from hypothesis import strategies as st

from mmctl.cache.eviction import Duel, Frequency, Segments

PLACES = 1000
REQUESTS = 60_000


@pytest.mark.parametrize("name", TRACES)
def test_hits_are_never_far_below_those_of_lru_nor_of_tinylfu(name: str) -> None:
    trace = TRACES[name](REQUESTS)
    keys = [key_of(item) for item in trace]
    hits = 100 * duel_hits(keys, PLACES)[0] / len(keys)
    assert hits >= 100 * lru_hits(keys, PLACES) / len(keys) - 3
    assert hits >= THEINE[name] - 2


THEINE = {
    "zipf 1.0": 57.3,
    "zipf 0.8": 28.8,
    "zipf 0.9 and a scan": 31.5,
    "zipf 1.0 that shifts": 51.5,
    "bursts": 21.5,
}
"""Hits of theine 2.0.0 in percent, of REQUESTS requests."""


def test_what_fits_stays() -> None:
    duel = Duel(100)
    for item in range(100):
        assert duel.add(key_of(item), 1) == []
    assert all(duel.asked(key_of(item)) for item in range(100))


def test_a_key_larger_than_the_room_leaves_at_once() -> None:
    duel = Duel(10)
    duel.add(key_of(1), 5)
    assert duel.add(key_of(2), 11) == [key_of(2)]
    assert key_of(1) in duel


def test_a_scan_does_not_wash_out_what_is_asked_for_often() -> None:
    duel = Duel(100)
    for _ in range(5):
        for item in range(50):
            if not duel.asked(key_of(item)):
                duel.add(key_of(item), 1)
    for item in range(1000, 5000):
        duel.asked(key_of(item))
        duel.add(key_of(item), 1)
    assert sum(key_of(item) in duel for item in range(50)) >= 45


def test_after_a_change_of_traffic_it_follows() -> None:
    bursts = [key_of(item) for item in TRACES["bursts"](30_000)]
    zipf = [key_of(item) for item in TRACES["zipf 0.8"](30_000)]
    _, duel = duel_hits(bursts, PLACES)
    assert duel.favours_recency
    for key in zipf:
        if not duel.asked(key):
            duel.add(key, 1)
    assert not duel.favours_recency
    for key in bursts:
        if not duel.asked(key):
            duel.add(key, 1)
    assert duel.favours_recency


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["ask", "add", "drop"]), st.integers(0, 30), st.integers(1, 12)),
    max_size=120,
)


@given(ACTIONS, st.sampled_from([0.01, 0.3, 1.0]))
def test_the_room_is_never_exceeded_and_all_is_accounted_for(
    actions: list[tuple[str, int, int]], share: float
) -> None:
    segments, frequency = Segments(40, share), Frequency()
    sizes: dict[bytes, int] = {}
    for number, (action, item, size) in enumerate(actions):
        key = key_of(item)
        if number % 40 == 20:
            segments.recent_share = 1.0 if segments.recent_share < 1 else 0.01
        match action:
            case "ask":
                frequency.add(key)
                assert segments.touch(key) == (key in sizes)
            case "add" if key not in sizes:
                sizes[key] = size
                for gone in segments.add(key, size, frequency):
                    del sizes[gone]
            case "drop":
                segments.drop(key)
                sizes.pop(key, None)
        assert segments.used_bytes == sum(sizes.values()) <= 40
        assert len(segments) == len(sizes)


@given(st.lists(st.integers(0, 20), max_size=200))
def test_a_frequency_is_never_too_low(items: list[int]) -> None:
    frequency = Frequency()
    for number, item in enumerate(items):
        frequency.add(key_of(item))
        if number == 100:
            frequency.fit(5000)
    assert all(frequency.of(key_of(item)) >= min(items.count(item), 15) for item in set(items))


def test_frequencies_fade() -> None:
    frequency = Frequency()
    for _ in range(15):
        frequency.add(key_of(1))
    for item in range(100, 6000):
        frequency.add(key_of(item))
    assert frequency.of(key_of(1)) < 15
