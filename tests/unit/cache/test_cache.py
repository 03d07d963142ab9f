"""Answers that are given again: when, to whom, for how long, and when not."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_worlds import MODEL, Model, ask, asked_in_task, performed, request, run_of, text
from clocks import Clock

from mmctl.cache.cache import Cache
from mmctl.cache.effects import Pause
from mmctl.cache.keys import Identity
from mmctl.cache.settings import CacheSettings, ModelCache
from mmctl.effects import Steps, drive
from mmctl.errors import InferenceError, InputError, LateError, WorldError
from mmctl.inference import CacheNote, InferRequest, InferResponse
from mmctl.workspace import read_workspace


def a_cache(clock: Clock | None = None, **setting: Any) -> Cache:
    settings = CacheSettings(others=ModelCache(**setting))
    return Cache(tenant="t", settings=settings, clock=clock or Clock())


# --- exact


def test_an_equal_request_is_answered_without_the_model() -> None:
    clock = Clock()
    cache, model = a_cache(clock), Model()
    first, note = ask(cache, model, request(3.0))
    assert (first.outputs["sum"].tolist(), note) == ([3.0], CacheNote("none"))
    clock.now += 7
    again, note = ask(cache, model, request(3.0))
    assert (again.outputs["sum"].tolist(), again.model, again.version) == ([3.0], "m", "1")
    assert note == CacheNote("exact", age_s=7.0)
    assert model.runs == 1


@pytest.mark.parametrize(
    ("other", "options"),
    [
        pytest.param(request(4.0), {}, id="another value"),
        pytest.param(request(3, dtype="i4"), {}, id="another type"),
        pytest.param(request([[3.0]]), {}, id="another shape"),
        pytest.param(request(3.0, parameters={"scale": 2}), {}, id="a parameter"),
        pytest.param(request(3.0, outputs=("sum",)), {}, id="other outputs"),
        pytest.param(request(3.0), {"tenant": "u"}, id="another tenant"),
        pytest.param(request(3.0), {"identity": replace(MODEL, digest="d2")}, id="a reload"),
        pytest.param(request(3.0), {"no_store": True}, id="no_store"),
    ],
)
def test_any_other_request_is_not(other: InferRequest, options: dict[str, Any]) -> None:
    cache, model = a_cache(), Model()
    ask(cache, model, request(3.0))
    ask(cache, model, other, **options)
    assert model.runs == 2


def test_a_new_version_has_its_own_answers() -> None:
    cache = a_cache()
    ask(cache, Model(version="1"))
    given, note = ask(cache, Model(version="2"), identity=replace(MODEL, version="2"))
    assert (given.version, note.level) == ("2", "none")


def test_tenants_share_exact_answers_only_where_the_model_says_so() -> None:
    for shared in (False, True):
        cache, model = a_cache(shared=shared), Model()
        ask(cache, model, tenant="a")
        _, note = ask(cache, model, tenant="b")
        assert note.level == ("exact" if shared else "none")


def test_a_tenant_named_like_the_shared_audience_is_a_tenant() -> None:
    open_, model = a_cache(shared=True), Model()
    settings = CacheSettings(models={"m": ModelCache(shared=True)}, others=ModelCache())
    cache = Cache(tenant="shared", settings=settings)
    ask(cache, model)
    ask(cache, model, identity=replace(MODEL, model="n"))
    ask(cache, model, identity=replace(MODEL, model="n"), tenant="other")
    assert model.runs == 3
    open_.close()


def test_a_request_without_a_tenants_name_is_nobodys() -> None:
    """It must not become that of the cache: the name may have been lost on the way."""
    with pytest.raises(InputError, match="tenant"):
        ask(a_cache(), Model(), tenant="")


def test_a_tenant_must_be_named() -> None:
    with pytest.raises(InputError, match="tenant"):
        Cache(tenant="")


def test_a_workspace_says_how(tmp_path: Path) -> None:
    (tmp_path / "mmctl.yaml").write_text("cache: {others: off, models: {m: {ttl_s: 60}}}")
    cache = Cache.of_workspace(read_workspace(tmp_path), tenant="t")
    assert cache.settings.of("m") == ModelCache(ttl_s=60)
    assert cache.settings.of("n") is None


# --- what is not kept


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request(parameters={"sequence_id": 1}), id="a sequence"),
        pytest.param(request(headers={"cache-control": "no-store"}), id="the header no-store"),
        pytest.param(request(parameters={"temperature": "0.5"}), id="sampling"),
    ],
)
def test_what_no_cache_may_answer_goes_to_the_model(asked: InferRequest) -> None:
    cache, model = a_cache(), Model()
    assert [ask(cache, model, asked)[1] for _ in range(2)] == [CacheNote("bypass")] * 2
    assert model.runs == 2


def test_a_model_that_is_off_is_always_asked() -> None:
    cache = Cache(tenant="t", settings=CacheSettings(models={"m": "off"}))
    model = Model()
    assert [ask(cache, model)[1].level for _ in range(2)] == ["bypass", "bypass"]


def test_no_store_neither_reads_nor_writes() -> None:
    cache, model = a_cache(), Model()
    assert ask(cache, model, no_store=True)[1].level == "bypass"
    assert ask(cache, model)[1].level == "none"
    assert run_of(ask(cache, model, no_store=True)) == 3


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param({}, id="no outputs"),
        pytest.param({"a": np.zeros(1)}, id="an output missing"),
    ],
)
def test_an_answer_that_is_not_whole_is_not_kept(outputs: dict[str, Any]) -> None:
    cache, runs = a_cache(), []

    def compute(asked: InferRequest) -> Steps[InferResponse]:
        runs.append(1)
        return InferResponse(outputs, "m", "1")
        yield

    for _ in range(2):
        steps = cache.steps(MODEL, request(outputs=("a", "b")), compute)
        drive(steps, performed(cache))
    assert len(runs) == 2


def test_the_answer_of_another_version_is_given_and_not_kept() -> None:
    """Between a client's question which version is live and the answer, a deploy has moved it."""
    cache, model = a_cache(), Model(version="2")
    given, note = ask(cache, model)
    assert (given.version, note.level) == ("2", "none")
    assert ask(cache, model)[1].level == "none"


def test_a_large_answer_is_not_kept() -> None:
    settings = CacheSettings(max_entry_bytes=1000)
    cache, model = Cache(tenant="t", settings=settings), Model()
    ask(cache, model)
    assert cache.statistics()["m"]["none"]["refused"] == 1


# --- time


def test_answers_live_as_long_as_is_set_give_or_take_a_tenth() -> None:
    lives = []
    for x in range(40):
        clock, model = Clock(), Model()
        cache = a_cache(clock, ttl_s=100)
        ask(cache, model, request(x))
        while run_of(ask(cache, model, request(x))) == 1:
            clock.now += 1
        lives.append(clock.now - Clock().now)
    assert 90 <= min(lives) < 96
    assert 104 < max(lives) <= 111


def test_being_asked_for_does_not_lengthen_a_life() -> None:
    clock = Clock()
    cache, model = a_cache(clock, ttl_s=1800), Model()
    for _ in range(1800 + 180 + 1):
        ask(cache, model)
        clock.now += 1
    assert model.runs == 2


def test_an_answer_that_lives_no_time_is_not_kept() -> None:
    cache, model = a_cache(ttl_s=0), Model()
    ask(cache, model)
    ask(cache, model)
    assert model.runs == 2


def test_an_old_answer_is_given_while_one_caller_fetches_a_new_one() -> None:
    clock = Clock()
    cache, model = a_cache(clock, ttl_s=10, stale_s=60), Model()
    ask(cache, model)
    clock.now += 20
    model.seconds = 0.2
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ask, cache, model) for _ in range(8)]
        given = [done.result() for done in waiting]
    assert model.runs == 2
    stale = [each for each in given if run_of(each) == 1]
    assert 1 <= len(stale) <= 7
    assert {(note.level, note.stale, note.age_s) for _, note in stale} == {("exact", True, 20.0)}
    assert run_of(ask(cache, model)) == 2
    assert cache.statistics()["m"]["exact"]["stale"] == len(stale)


def test_an_old_answer_stands_in_for_a_model_that_fails() -> None:
    clock = Clock()
    cache, model = a_cache(clock, ttl_s=10, stale_s=60), Model()
    ask(cache, model)
    clock.now += 20
    failing = Model(WorldError("down"), WorldError("down"))
    assert ask(cache, failing)[1].stale
    clock.now += 60
    with pytest.raises(WorldError):
        ask(cache, Model(WorldError("down"), WorldError("down")))


# --- errors


WRONG = [
    pytest.param(InputError("shape"), id="found here"),
    pytest.param(InferenceError("unexpected shape", final=True), id="found by Triton"),
]


@pytest.mark.parametrize("error", WRONG)
def test_an_error_of_the_request_is_given_again_for_a_moment(error: Exception) -> None:
    clock = Clock()
    cache, model = a_cache(clock), Model(error)
    for _ in range(3):
        with pytest.raises(type(error), match="shape"):
            ask(cache, model)
    assert model.runs == 1
    clock.now += 2
    assert ask(cache, model)[1].level == "none"
    assert cache.statistics()["m"]["exact"]["negative"] == 2


@pytest.mark.parametrize(
    "error",
    [WorldError("nobody there"), InferenceError("internal"), LateError("late")],
    ids=str,
)
def test_an_error_of_the_world_is_not(error: Exception) -> None:
    cache, model = a_cache(), Model(error)
    with pytest.raises(type(error)):
        ask(cache, model)
    assert ask(cache, model)[1].level == "none"


def test_other_requests_do_not_get_an_error() -> None:
    cache, model = a_cache(), Model(InputError("shape"))
    with pytest.raises(InputError):
        ask(cache, model, request(1.0))
    ask(cache, model, request(2.0))


# --- spelling


def test_one_spelling_is_enough_where_the_model_says_so() -> None:
    cache, model = a_cache(normalise="text"), Model()
    assert ask(cache, model, text("Hello  World"))[1].level == "none"
    assert ask(cache, model, text("hello world!"))[1].level == "normalised"
    assert ask(cache, model, text("Hello  World"))[1].level == "exact"
    assert ask(cache, model, text("hello", "world"))[1].level == "none"
    assert model.runs == 2


def test_without_being_told_spelling_counts() -> None:
    cache, model = a_cache(), Model()
    ask(cache, model, text("Hello"))
    ask(cache, model, text("hello"))
    assert model.runs == 2


# --- callers that change their arrays


def test_an_answer_that_a_caller_got_is_not_the_one_that_is_kept() -> None:
    cache, model = a_cache(), Model()
    for _ in range(2):
        given, _ = ask(cache, model)
        with pytest.raises(ValueError, match="read-only"):
            given.outputs["sum"][0] = 99
        given.outputs.clear()  # type: ignore[attr-defined]
    assert ask(cache, model)[0].outputs["sum"].tolist() == [1.0]


def test_a_request_that_a_caller_changes_meanwhile_is_answered_as_it_was() -> None:
    """As a task may, while another is at work."""
    cache, array = a_cache(), np.array([1.0], "f4")

    def compute(asked: InferRequest) -> Steps[InferResponse]:
        yield Pause(0)
        return InferResponse({"sum": asked.inputs["x"] * 1}, "m", "1")

    steps = cache.steps(MODEL, InferRequest("m", {"x": array}), compute)
    effect = next(steps)
    array[0] = 5.0
    assert effect == Pause(0)
    with pytest.raises(StopIteration) as end:
        steps.send(None)
    assert end.value.value[0].outputs["sum"].tolist() == [1.0]
    assert ask(cache, Model())[0].outputs["sum"].tolist() == [1.0]


# --- many at once


def test_equal_requests_of_many_threads_are_one() -> None:
    cache, model = a_cache(), Model(seconds=0.3)
    with ThreadPoolExecutor(100) as pool:
        given = [done.result() for done in [pool.submit(ask, cache, model) for _ in range(1000)]]
    assert model.runs == 1
    assert {run_of(each) for each in given} == {1}
    assert any(note.coalesced for _, note in given)


def test_equal_requests_of_many_tasks_and_threads_are_one() -> None:
    """2,000 of them."""
    cache, model = a_cache(), Model(seconds=0.5)

    async def many() -> list[Any]:
        return await asyncio.gather(*(asked_in_task(cache, model) for _ in range(1900)))

    with ThreadPoolExecutor(100) as pool:
        waiting = [pool.submit(ask, cache, model) for _ in range(100)]
        given = asyncio.run(many()) + [done.result() for done in waiting]
    assert model.runs == 1
    assert len(given) == 2000
    levels = cache.statistics()["m"]
    assert levels["exact"]["lookups"] == 2000
    assert levels["none"]["coalesced"] + levels["exact"]["hits"] == 1999


def test_who_waits_survives_the_cancellation_of_who_computes() -> None:
    cache, model = a_cache(), Model(seconds=0.05)

    async def cancelled() -> Any:
        first = asyncio.create_task(asked_in_task(cache, model))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(asked_in_task(cache, model)) for _ in range(20)]
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await asyncio.gather(*others)

    given = asyncio.run(cancelled())
    assert {run_of(each) for each in given} == {2}
    assert model.runs == 2


def test_nobody_waits_longer_than_there_is_time() -> None:
    cache, slow = a_cache(), Model(seconds=0.5)
    leader = threading.Thread(target=ask, args=(cache, slow))
    leader.start()
    time.sleep(0.05)
    with pytest.raises(LateError):
        ask(cache, slow, deadline=time.monotonic() + 0.05)
    leader.join()
    assert slow.runs == 1


# --- epochs


def test_what_a_version_said_before_its_exchange_was_seen_is_not_found_later() -> None:
    """Its content was d2 when it answered, and d1 is what was known: that comes back."""
    cache, old, new = a_cache(), Model(), Model()
    other = replace(MODEL, digest="d2")
    ask(cache, old, request(1.0))
    ask(cache, new, request(2.0))
    ask(cache, new, request(1.0), identity=other)
    assert ask(cache, new, request(1.0), identity=other)[1].level == "exact"
    assert [ask(cache, old, request(x))[1].level for x in (1.0, 2.0)] == ["none", "none"]


def test_versions_side_by_side_keep_their_answers() -> None:
    cache, model = a_cache(), Model()
    versions = [replace(MODEL, version=number, digest=f"d{number}") for number in ("1", "2")]
    levels = []
    for _ in range(2):
        for version in versions:
            model.version = version.version
            levels.append(ask(cache, model, identity=version)[1].level)
    assert levels == ["none", "none", "exact", "exact"]


def test_clearing_puts_all_answers_of_a_model_out_of_reach() -> None:
    cache, model = a_cache(), Model()
    other = {"asked": replace(request(), model="n"), "identity": Identity("n", "1")}
    ask(cache, model)
    ask(cache, model, **other)
    assert cache.clear("m") == 1
    assert ask(cache, model)[1].level == "none"
    assert ask(cache, model, **other)[1].level == "exact"
    assert cache.clear() == 2
    assert ask(cache, model, **other)[1].level == "none"


def test_an_answer_under_way_while_the_cache_is_cleared_is_not_found_later() -> None:
    cache, model = a_cache(), Model(seconds=0.01)
    steps = cache.steps(MODEL, request(), model.compute)
    assert next(steps) == Pause(0.01)
    cache.clear("m")
    with pytest.raises(StopIteration):
        steps.send(None)
    assert ask(cache, Model())[1].level == "none"


# --- statistics


def test_what_happened_is_counted() -> None:
    cache, model = a_cache(Clock(), normalise="text"), Model(seconds=0.01)
    ask(cache, model, text("a"))
    ask(cache, model, text("a"))
    ask(cache, model, text("A"))
    ask(cache, model, text("a"), no_store=True)
    levels = cache.statistics()["m"]
    assert levels["exact"]["lookups"] == 3
    assert levels["exact"]["hits"] == 1
    assert levels["normalised"]["lookups"] == 2
    assert levels["normalised"]["hits"] == 1
    assert levels["none"]["filled"] == 1
    assert levels["bypass"]["bypass"] == 1
    assert levels["exact"]["bytes"] > 2000
    assert levels["exact"]["unproven"] == 0
    assert levels["exact"]["saved_ms"] > 8
    assert levels["none"]["compute_p50_ms"] >= 10
    assert 'mmctl_cache_hits_total{model="m",level="exact"} 1' in cache.prometheus()


def test_a_model_without_a_digest_is_called_unproven() -> None:
    cache = a_cache()
    ask(cache, Model(), identity=Identity("m", "1"))
    assert cache.statistics()["m"]["exact"]["unproven"] == 1


# --- processes


def test_a_process_that_was_forked_amid_requests_has_a_cache_of_its_own() -> None:
    cache, model, ended = a_cache(), Model(), threading.Event()

    def ask_on() -> None:
        while not ended.is_set():
            ask(cache, model, request(float(model.runs % 50)))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(ask_on)
        try:
            codes = [_code_of_child(cache) for _ in range(30)]
        finally:
            ended.set()
    assert codes == [0] * 30


def _code_of_child(cache: Cache) -> int:
    """0 when it was answered and counted its own request alone; killed after two seconds."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(2)
        ask(cache, Model(), request(1000.0))
        os._exit(int(cache.statistics()["m"]["exact"]["lookups"] != 1))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
