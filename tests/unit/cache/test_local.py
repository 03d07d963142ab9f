"""The answers of one process: bounded in bytes, and none older than it may be."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from cache_traces import key_of
from clocks import Clock

from mmctl.cache.envelope import Entry, kept
from mmctl.cache.local import LocalStore, weight
from mmctl.inference import InferResponse
from mmctl.tensors import Array

KIB = 1024
MIB = 1024 * KIB


def an_entry(
    clock: Clock, *, ttl_s: float = 1800.0, bytes_: int = 8, model: str = "m", stale_s: float = 0.0
) -> Entry:
    response = InferResponse({"y": np.zeros(bytes_, "u1")}, model, "1")
    return kept(response, created=clock(), ttl_s=ttl_s, stale_s=stale_s)


def test_what_is_kept_is_found() -> None:
    clock = Clock()
    store = LocalStore(MIB, clock)
    entry = an_entry(clock)
    assert store.get(key_of(1)) is None
    assert store.put(key_of(1), entry)
    assert store.get(key_of(1)) is entry


def test_reading_does_not_lengthen_a_life() -> None:
    """An entry that is read every second dies 30 minutes after it was written, to the second."""
    clock = Clock()
    store = LocalStore(MIB, clock)
    store.put(key_of(1), an_entry(clock, ttl_s=1800))
    for _ in range(1799):
        clock.now += 1
        assert store.get(key_of(1)) is not None
    clock.now += 1
    assert store.get(key_of(1)) is None


def test_an_old_entry_is_there_while_it_may_be_given_stale() -> None:
    clock = Clock()
    store = LocalStore(MIB, clock)
    store.put(key_of(1), an_entry(clock, ttl_s=10, stale_s=5))
    clock.now += 12
    assert store.get(key_of(1)) is not None
    clock.now += 3
    assert store.get(key_of(1)) is None


def test_why_an_entry_left_is_told() -> None:
    clock = Clock()
    reasons: Counter[str] = Counter()
    store = LocalStore(200 * KIB, clock, lambda reason, entry: reasons.update([reason]))
    store.put(key_of(0), an_entry(clock, ttl_s=1))
    store.put(key_of(1), an_entry(clock, model="n"))
    store.put(key_of(2), an_entry(clock))
    clock.now += 1
    assert store.get(key_of(0)) is None
    assert store.drop("n") == 1
    assert store.drop(reason="size") == 1
    assert reasons == {"ttl": 1, "epoch": 1, "size": 1}
    assert (len(store), store.used_bytes) == (0, 0)


def test_a_newer_answer_takes_the_place_of_the_older() -> None:
    clock = Clock()
    store = LocalStore(MIB, clock)
    store.put(key_of(1), an_entry(clock))
    newer = an_entry(clock, bytes_=1000)
    store.put(key_of(1), newer)
    assert store.get(key_of(1)) is newer
    assert store.used_bytes == weight(newer)


def test_an_entry_that_would_displace_too_much_is_not_kept() -> None:
    clock = Clock()
    store = LocalStore(80 * KIB, clock)
    store.put(key_of(1), an_entry(clock))
    assert not store.put(key_of(1), an_entry(clock, bytes_=11 * KIB))
    assert store.get(key_of(1)) is None


def test_models_are_told_apart_by_what_they_take() -> None:
    clock = Clock()
    store = LocalStore(MIB, clock)
    store.put(key_of(1), an_entry(clock, bytes_=1000))
    store.put(key_of(2), an_entry(clock, bytes_=2000, model="n"))
    sizes = store.bytes_by_model()
    assert sizes["n"] - sizes["m"] == 1000
    assert sum(sizes.values()) == store.used_bytes


def text_output(number: int) -> Array:
    array = np.empty(20, dtype=object)
    array[:] = [f"text {number} {i}".encode() for i in range(20)]
    return array


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        pytest.param(lambda i: np.array([i], "f4"), MIB, id="numbers"),
        pytest.param(lambda i: np.full(256, i, "f4"), 2 * MIB, id="kilobytes"),
        pytest.param(text_output, 2 * MIB, id="texts"),
        pytest.param(lambda i: np.full(30_000, i, "f4"), 8 * MIB, id="large"),
    ],
)
def test_memory_stays_within_a_tenth_of_the_limit_when_nothing_hits(
    make: Callable[[int], Array], limit: int
) -> None:
    store = LocalStore(limit)
    count = 4 * limit // weight(kept(InferResponse({"y": make(0)}), created=0.0, ttl_s=1.0))
    gc.collect()
    tracemalloc.start()
    try:
        before, peak = tracemalloc.get_traced_memory()[0], 0
        for number in range(count):
            store.get(key_of(number))
            response = InferResponse({"y": make(number)}, "m", "1")
            store.put(key_of(number), kept(response, created=2e12, ttl_s=3600.0))
            if number % 100 == 0:
                peak = max(peak, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert 0.5 * limit < peak <= 1.1 * limit


def test_threads_share_it() -> None:
    clock = Clock()
    store = LocalStore(40 * KIB, clock)
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for number in range(1500):
                wanted = key_of((number * 7 + offset) % 97)
                entry = store.get(wanted)
                assert entry is None or entry.outputs["y"].nbytes == wanted[0]
                store.put(wanted, an_entry(clock, bytes_=wanted[0]))
                if number % 500 == 0:
                    store.drop("m")
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.used_bytes <= 40 * KIB
    assert sum(store.bytes_by_model().values()) == store.used_bytes
