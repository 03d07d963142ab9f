"""What requests share of a node: slots, saturation, the breaker; threads and timers."""

from __future__ import annotations

import threading
import time
from typing import Any

import bls_calls
import pytest
from bls_graphs import PATIENCE_S, Gate, InTurn, Pipeline, double, fails, node, pipeline
from bls_threads import Pool, Timers


def one(a: Any, **keys: Any) -> Pipeline:
    return pipeline([node("a", {"x": "x"}, **keys)], a=a)


def test_no_more_calls_of_a_node_are_under_way_than_max_in_flight() -> None:
    gate = Gate()
    demo = one(gate, max_in_flight=2)
    asked = [demo.ask(number) for number in range(5)]
    gate.await_calls(2)
    assert not gate.is_called
    gate.open()
    gate.await_calls()
    assert not gate.is_called
    gate.open(4)
    assert [one.rows() for one in asked] == [[0], [2], [4], [6], [8]]


def test_those_that_wait_are_served_in_turn() -> None:
    gate = Gate()
    demo = one(gate, max_in_flight=1)
    asked = [demo.ask(number) for number in range(4)]
    gate.open(4)
    for request in asked:
        request.wait()
    assert [call.inputs["x"][0, 0] for call in demo.models.calls] == [0, 1, 2, 3]


def test_a_dead_model_fills_its_own_slots_and_no_others() -> None:
    dead = Gate()
    demo = pipeline(
        [node("a", {"x": "x"}, max_in_flight=2, timeout_ms=20, on_error=0), node("b", {"x": "x"}),
         node("c", {"x": "b.y", "o": "a.y"})],
        a=dead, c=lambda x, o: x + o,
    )  # fmt: skip
    for number in range(20):
        assert demo.ask(number).rows() == [2 * number]
    assert len(demo.models.of("a")) == 2
    dead.open(2)


def saturated(**keys: Any) -> tuple[Pipeline, Gate]:
    """All calls of `a` are late: its model hangs."""
    gate = Gate()
    demo = one(gate, max_in_flight=2, timeout_ms=20, **keys)
    assert [demo.ask(n).error().kind for n in (1, 2)] == ["timeout"] * 2
    gate.await_calls(2)
    return demo, gate


def test_nobody_waits_while_all_calls_are_late() -> None:
    demo, gate = saturated()
    asked = demo.ask(3)
    assert asked.is_answered
    assert str(asked.error()) == "node `a`: saturated: all 2 calls under way are late"
    assert asked.error().kind == "saturated"
    gate.open(2)


def test_a_late_answer_makes_room_again() -> None:
    demo, gate = saturated()
    gate.open(3)
    demo.await_late("a", 2)
    assert demo.ask(3).rows() == [6]


def test_those_that_wait_already_fail_when_the_last_call_becomes_late() -> None:
    gate = Gate()
    demo = pipeline(
        [node("a", {"x": "x"}, max_in_flight=1, timeout_ms=60)], a=gate
    )  # fmt: skip
    first = demo.ask(1)
    gate.await_calls()
    time.sleep(0.03)
    second = demo.ask(2)
    assert first.error().kind == "timeout"
    assert second.error().kind == "saturated"
    gate.open()


def test_a_try_that_finds_no_room_leaves_the_first_be() -> None:
    """One slot: the hedge waits in vain, and the first call answers."""
    gate = Gate()
    demo = one(gate, max_in_flight=1, hedge_ms=5)
    asked = demo.ask(1)
    gate.await_calls()
    time.sleep(0.03)
    gate.open()
    assert asked.rows() == [2]
    demo.await_idle()
    assert len(demo.models.calls) == 1


def unhealthy(model: Any = None, **keys: Any) -> Pipeline:
    """Three answers in a row said that `a` is not healthy."""
    gone = fails("Stub process is not healthy.", "unhealthy")
    demo = one(InTurn(gone, gone, gone, model or double), **keys)
    for _ in range(3):
        assert demo.ask(1).error().kind == "unhealthy"
    return demo


def test_after_three_unhealthy_answers_a_model_is_not_asked() -> None:
    demo = unhealthy()
    asked = demo.ask(1)
    assert asked.is_answered
    assert str(asked.error()) == "node `a`: not healthy in its last calls, so it is not asked"
    assert asked.error().kind == "unhealthy"
    assert len(demo.models.calls) == 3


def test_an_open_breaker_lets_one_call_through_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    demo = unhealthy(gate)
    monkeypatch.setattr(bls_calls, "OPEN_S", 0.0)
    probe = demo.ask(2)
    gate.await_calls()
    monkeypatch.setattr(bls_calls, "OPEN_S", 60.0)
    assert demo.ask(3).error().kind == "unhealthy"
    gate.open(2)
    assert probe.rows() == [4]
    assert demo.ask(3).rows() == [6]


def test_a_probe_that_fails_leaves_the_breaker_open(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = unhealthy(fails(kind="unhealthy"))
    monkeypatch.setattr(bls_calls, "OPEN_S", 0.0)
    demo.ask(2).error()
    monkeypatch.setattr(bls_calls, "OPEN_S", 60.0)
    demo.ask(2).error()
    assert len(demo.models.calls) == 4


def test_unhealthy_answers_with_others_between_them_open_nothing() -> None:
    gone = fails(kind="unhealthy")
    demo = one(InTurn(gone, gone, fails("no"), gone, gone, double))
    assert [demo.ask(1).error().kind for _ in range(5)].count("unhealthy") == 4
    assert demo.ask(1).rows() == [2]


def test_calls_under_way_fail_when_the_breaker_opens() -> None:
    """Each would cost its caller the time that Triton waits for a dead stub."""
    stuck, gone = Gate(), fails("gone", "unhealthy")
    demo = one(InTurn(stuck, gone), max_in_flight=2)
    under_way = demo.ask(1)
    stuck.await_calls()
    for _ in range(3):
        demo.ask(1).error()
    assert str(under_way.error()) == "node `a`: gone"
    stuck.open()
    demo.await_idle()


def test_a_retry_of_a_model_that_is_not_asked_tells_what_was_before() -> None:
    demo = one(fails("gone", "unhealthy"), retries=5)
    assert str(demo.ask(1).error()) == "node `a`: gone"
    assert len(demo.models.calls) == 3


def test_threads_are_as_many_as_calls_at_once() -> None:
    gate = Gate()
    nodes = [node("a", {"x": "x"}, max_in_flight=2), node("b", {"x": "x"}, max_in_flight=3)]
    demo = pipeline(nodes, {"p": "a.y", "q": "b.y"}, a=gate, b=gate)
    asked = [demo.ask(number) for number in range(50)]
    gate.await_calls(5)
    gate.open(100)
    for request in asked:
        request.outputs()
    assert demo.plan.calls_at_once == 5
    assert demo.runner.pool.count == 5
    assert len({call.thread for call in demo.models.calls}) <= 5


def test_a_thread_is_used_again() -> None:
    demo = one(double, max_in_flight=8)
    for number in range(50):
        demo.ask(number).wait()
        demo.await_idle()
    assert demo.runner.pool.count <= 2


def test_a_pool_outlives_what_its_work_raises(capfd: pytest.CaptureFixture[str]) -> None:
    pool, done = Pool(1), threading.Event()

    def boom() -> None:
        raise ValueError("boom")

    pool.submit(boom)
    pool.submit(done.set)
    assert done.wait(PATIENCE_S)
    assert "ValueError: boom" in capfd.readouterr().err


def test_timers_outlive_what_they_call_raises(capfd: pytest.CaptureFixture[str]) -> None:
    timers, done = Timers(), threading.Event()

    def boom() -> None:
        raise ValueError("boom")

    timers.soon(boom)
    timers.soon(done.set)
    assert done.wait(PATIENCE_S)
    assert "ValueError: boom" in capfd.readouterr().err


def test_timers_call_in_the_order_of_time_and_not_what_was_stopped() -> None:
    timers, done, told = Timers(), threading.Event(), []
    now = time.monotonic()
    timers.at(now + 0.06, done.set)
    timers.at(now + 0.04, lambda: told.append("second"))
    timers.at(now + 0.03, lambda: told.append("stopped")).stop()
    timers.at(now + 0.02, lambda: told.append("first"))
    assert done.wait(PATIENCE_S)
    assert told == ["first", "second"]


def test_an_answer_keeps_nothing_until_the_time_is_over() -> None:
    """A timeout of a minute does not hold the tensors of a request for a minute."""
    import gc
    import weakref

    import numpy as np

    class Big(np.ndarray[Any, Any]):
        pass

    demo = one(double, timeout_ms=60_000)
    given = np.ones((1, 1), np.float32).view(Big)
    asked, seen = demo.ask(x=given), weakref.ref(given)
    asked.wait()
    demo.await_idle()
    del given
    demo.models.calls.clear()
    asked.answers.clear()
    demo.ask(1).wait()  # so that no thread keeps its last call as a local
    gc.collect()
    assert seen() is None
