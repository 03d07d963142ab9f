"""Caches that share a store: each is another process as far as the store can tell."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from cache_worlds import MODEL, Model, ask, asked_in_task, request, run_of, text
from clocks import Clock

from mmctl.cache.cache import Cache
from mmctl.cache.epochs import move_epoch
from mmctl.cache.settings import CacheSettings, ModelCache
from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore

Make = Callable[..., Cache]


@pytest.fixture
def make(store: SharedStore, store_url: str) -> Iterator[Make]:
    """Makes caches that share an empty store."""
    made: list[Cache] = []

    def a_cache(tenant: str = "t", secret: bytes | None = None, **setting: Any) -> Cache:
        clock = setting.pop("clock", Clock())
        settings = CacheSettings(others=ModelCache(**setting))
        cache = Cache(tenant=tenant, settings=settings, store=store_url, secret=secret, clock=clock)
        made.append(cache)
        return cache

    yield a_cache
    for cache in made:
        cache.close()


def test_an_answer_of_one_process_is_another_s(make: Make) -> None:
    model = Model()
    ask(make(), model)
    given, note = ask(make(), model)
    assert (run_of((given, note)), note.level) == (1, "exact")


def test_so_is_one_spelling(make: Make) -> None:
    model = Model()
    ask(make(normalise="text"), model, text("Hello"))
    assert ask(make(normalise="text"), model, text("hello!"))[1].level == "normalised"
    assert model.runs == 1


def test_tenants_never_meet(make: Make) -> None:
    model = Model()
    ask(make("a"), model)
    ask(make("b"), model)
    assert model.runs == 2


@pytest.mark.parametrize(
    ("one", "other"), [(b"s1", b"s2"), (b"s1", None), (None, b"s1")], ids=["other", "none", "one"]
)
def test_nobody_reads_what_another_secret_sealed(
    make: Make, one: bytes | None, other: bytes | None
) -> None:
    model = Model()
    ask(make(secret=one), model)
    ask(make(secret=other), model)
    assert model.runs == 2


def test_a_damaged_answer_is_computed_and_written_anew(make: Make, store: SharedStore) -> None:
    model = Model()
    ask(make(), model)
    (name,) = store.run(("KEYS", f"{names.PREFIX}entry:*"))[0]
    (raw,) = store.run(("GET", name))
    store.run(("SET", name, raw[:-1] + bytes([raw[-1] ^ 1])))
    second = make()
    assert run_of(ask(second, model)) == 2
    assert second.statistics()["m"]["exact"]["unreadable"] == 1
    assert run_of(ask(make(), model)) == 2


def test_an_answer_copied_under_another_key_is_none(make: Make, store: SharedStore) -> None:
    model = Model()
    ask(make(), model, request(1.0))
    ask(make(), model, request(2.0))
    one, other = store.run(("KEYS", f"{names.PREFIX}entry:*"))[0]
    store.run(("COPY", one, other, "REPLACE"), ("COPY", one, b"x"))
    for x in (1.0, 2.0):
        assert ask(make(), model, request(x))[0].outputs["sum"].tolist() == [x]


def test_answers_leave_the_store_by_themselves(make: Make, store: SharedStore) -> None:
    ask(make(ttl_s=100, stale_s=30), Model())
    (name,) = store.run(("KEYS", f"{names.PREFIX}entry:*"))[0]
    assert 115_000 < store.run(("PTTL", name))[0] <= 140_000


def test_prompts_are_not_in_the_store(make: Make, store: SharedStore) -> None:
    ask(make(normalise="text"), Model(), text("my secret prompt"))
    for name in store.run(("KEYS", "*"))[0]:
        kind = store.run(("TYPE", name))[0]
        value = store.run(("HGETALL" if kind == b"hash" else "GET", name))[0]
        assert b"secret" not in name + repr(value).encode()


def test_a_moved_epoch_is_seen_within_a_second(make: Make, store_url: str) -> None:
    one, other, model = make(), make(), Model()
    assert [run_of(ask(cache, model)) for cache in (one, other)] == [1, 1]
    move_epoch(store_url, ["m"])
    time.sleep(1)
    assert [run_of(ask(cache, model)) for cache in (one, other)] == [2, 2]
    assert one.statistics()["m"]["exact"]["evicted_epoch"] == 1


def test_clearing_is_for_all_who_share(make: Make) -> None:
    one, other, model = make(), make(), Model()
    ask(one, model)
    ask(other, model)
    one.clear("m")
    assert run_of(ask(one, model)) == 2
    time.sleep(1)
    assert run_of(ask(other, model)) == 2


def test_a_deploy_is_seen_at_once_by_its_digest(make: Make) -> None:
    cache, model = make(), Model()
    ask(cache, model)
    assert run_of(ask(cache, model, identity=replace(MODEL, digest="d2"))) == 2


def test_equal_requests_of_many_processes_are_one(make: Make) -> None:
    model, caches = Model(seconds=0.3), [make() for _ in range(4)]
    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(ask, caches[n % 4], model) for n in range(200)]
        given = [done.result() for done in waiting]
    assert model.runs == 1
    assert {run_of(each) for each in given} == {1}


def test_tasks_share_with_threads_of_other_processes(make: Make) -> None:
    model, one, other = Model(seconds=0.2), make(), make()

    async def many() -> list[Any]:
        return await asyncio.gather(*(asked_in_task(one, model) for _ in range(50)))

    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(ask, other, model) for _ in range(10)]
        given = asyncio.run(many()) + [done.result() for done in waiting]
    assert model.runs == 1
    assert {run_of(each) for each in given} == {1}


def test_an_old_answer_is_given_while_another_process_fetches_a_new_one(make: Make) -> None:
    clock = Clock()
    one, other = (make(ttl_s=10, stale_s=60, clock=clock) for _ in range(2))
    model = Model()
    ask(one, model)
    ask(other, model)
    clock.now += 20
    model.seconds = 0.6
    with ThreadPoolExecutor(2) as pool:
        fetching = pool.submit(ask, one, model)
        time.sleep(0.1)
        began = time.monotonic()
        _, note = ask(other, model)
        assert time.monotonic() - began < 0.4
        assert note.stale
        assert run_of(fetching.result()) == 2
    assert run_of(ask(other, model)) == 2


def test_what_a_process_counts_is_in_the_store(make: Make, store: SharedStore) -> None:
    cache = make()
    ask(cache, Model())
    ask(cache, Model())
    cache.close()
    told = [json.loads(raw) for raw in store.run(("HVALS", names.COUNTERS))[0]]
    assert [each["counts"]["m"]["exact"]["hits"] for each in told] == [1]


def test_a_store_that_does_not_answer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    with Cache(tenant="t", store="redis://:secret@127.0.0.1:9/0") as cache:
        for x in range(5):
            ask(cache, model, request(float(x)))
    (told,) = caplog.messages
    assert told.startswith("the store redis://127.0.0.1:9/0 does not answer: ")
    assert told.endswith("check its address and that it runs; until then answers are not shared")


def test_a_cache_that_was_closed_fails_no_task() -> None:
    cache, model = Cache(tenant="t", store="redis://127.0.0.1:9/0"), Model()
    cache.close()
    assert asyncio.run(asked_in_task(cache, model))[1].level == "none"


def test_an_exchange_that_one_process_sees_is_known_to_all(make: Make) -> None:
    old, new = Model(), Model()
    one, other, exchanged = make(), make(), replace(MODEL, digest="d2")
    ask(one, old)
    ask(one, new, request(2.0))  # by d2, which nobody has seen yet
    ask(one, new, identity=exchanged)
    assert ask(other, new, request(2.0))[1].level == "none"


def test_without_the_store_a_process_goes_on_alone() -> None:
    settings = CacheSettings(store="redis://127.0.0.1:1/0")
    cache, model = Cache(tenant="t", settings=settings), Model()
    began = time.monotonic()
    assert [ask(cache, model)[1].level for _ in range(20)] == ["none"] + ["exact"] * 19
    assert time.monotonic() - began < 0.5
    cache.close()
