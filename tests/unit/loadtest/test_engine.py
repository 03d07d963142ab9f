"""Offering a load. Times here are real, so they are judged by order and with wide bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from mmctl.errors import InferenceError, InputError, WorldError
from mmctl.loadtest import engine
from mmctl.loadtest.engine import GoneError, Load, Send, keep_asking, send_on_time
from mmctl.loadtest.record import Recorder


async def at_once(_: int) -> str:
    return ""


def evenly(rate: float, seconds: float) -> Iterator[float]:
    return (n / rate for n in range(int(rate * seconds)))


def offered(send: Send, rate: float = 200, seconds: float = 0.5) -> Load:
    load = Load(send, Recorder(seconds))
    asyncio.run(send_on_time(load, evenly(rate, seconds)))
    return load


def test_every_request_is_sent_and_noted() -> None:
    whole = offered(at_once).recorder.whole
    assert (whole.offered, whole.completed, whole.failed) == (100, 100, 0)


def test_requests_leave_when_they_are_due_not_when_others_are_answered() -> None:
    """All 100 leave within the half second, though each takes a second."""

    async def slow(_: int) -> str:
        await asyncio.sleep(1)
        return ""

    began = time.perf_counter()
    load = offered(slow)
    assert load.recorder.whole.completed == 100
    assert time.perf_counter() - began < 5


def stalled(server: Send) -> float:
    """p99 of a load of 2 s during which the server stands still from 0.5 s to 1.5 s."""
    load = offered(server, rate=100, seconds=2)
    p99 = load.recorder.whole.latency.quantile_ms(99)
    assert p99 is not None
    return p99


def stalling() -> Send:
    lock, began = asyncio.Lock(), time.perf_counter()

    async def send(_: int) -> str:
        async with lock:
            since = time.perf_counter() - began
            if 0.5 <= since < 1.5:
                await asyncio.sleep(1.5 - since)
        return ""

    return send


def test_a_server_that_stalls_for_a_second_shows_in_the_p99() -> None:
    assert stalled(stalling()) > 700


def test_a_caller_that_waits_for_its_answers_does_not_see_the_stall() -> None:
    """Why a closed loop is no measure of latency: it has sent one request instead of 100."""
    load = Load(stalling(), Recorder(2))

    async def thinking() -> None:
        async def paced(number: int) -> str:
            await asyncio.sleep(0.01)
            return await stalling_send(number)

        stalling_send, load.send = load.send, paced
        await keep_asking(load, 1, 2)

    asyncio.run(thinking())
    p90 = load.recorder.whole.latency.quantile_ms(90)
    assert p90 is not None
    assert p90 < 200


def test_a_machine_that_is_late_says_so() -> None:
    async def greedy(number: int) -> str:
        if number == 10:
            time.sleep(0.3)  # nothing else can leave meanwhile
        return ""

    load = offered(greedy)
    lag, latency = load.recorder.lag.max_ms, load.recorder.whole.latency.max_ms
    assert lag is not None
    assert latency is not None
    assert lag > 200
    assert latency > 200, "and who was late has waited"


def test_failures_are_counted_by_their_reason() -> None:
    async def failing(number: int) -> str:
        if number % 4 == 0:
            raise InferenceError("model `a`: no")
        return "other label" if number % 4 == 1 else ""

    load = offered(failing)
    assert load.recorder.whole.errors == {"model `a`: no": 25}
    assert load.wrong == {"other label": 25}


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_a_server_that_is_gone_ends_the_load_and_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(engine, "GONE_S", 0.2)

    async def dying(number: int) -> str:
        await asyncio.sleep(0.001)
        if number >= 20:
            raise WorldError("no Triton answers")
        return ""

    load = Load(dying, Recorder(30))
    run = send_on_time(load, evenly(200, 30)) if loop == "open" else keep_asking(load, 2, 30)
    began = time.perf_counter()
    with pytest.raises(GoneError, match="no Triton has answered since second"):
        asyncio.run(run)
    assert time.perf_counter() - began < 10
    assert load.recorder.whole.completed == 20


def test_a_request_that_cannot_be_made_ends_the_load() -> None:
    async def unfit(_: int) -> str:
        raise InputError("no value for `x`")

    with pytest.raises(InputError, match="no value"):
        offered(unfit)


def test_what_is_beyond_all_bounds_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_IN_FLIGHT", 10)

    async def slow(_: int) -> str:
        await asyncio.sleep(1)
        return ""

    whole = offered(slow).recorder.whole
    assert (whole.offered, whole.completed) == (100, 10)
    assert whole.errors == {"not sent: 10 requests were in flight": 90}


def test_callers_wait_for_their_answers() -> None:
    most = at_work = 0

    async def send(_: int) -> str:
        nonlocal most, at_work
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.01)
        at_work -= 1
        return ""

    load = Load(send, Recorder(0.3))
    asyncio.run(keep_asking(load, 3, 0.3))
    assert most == 3
    assert load.recorder.whole.completed == load.recorder.whole.offered > 9


def test_a_watcher_is_told_while_the_load_runs() -> None:
    told: list[int] = []
    load = Load(at_once, Recorder(1.5), watch=lambda recorder, _: told.append(len(recorder.slices)))
    asyncio.run(send_on_time(load, evenly(20, 1.5)))
    assert len(told) >= 1


def test_the_engine_keeps_up_with_2000_requests_a_second_on_one_core() -> None:
    """By CPU time, which other work on this machine does not change much: half of one core."""
    began = time.process_time()
    load = offered(at_once, rate=2000, seconds=2)
    assert load.recorder.whole.completed == 4000
    assert time.process_time() - began < 2
