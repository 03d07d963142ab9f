"""`timeout_ms`, `retries` and `hedge_ms`: a node's time, and calls beside one that does not answer.

Times are long (a call that is to be in time) or short (one that is not), never close.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from bls_graphs import Gate, InTurn, Pipeline, double, fails, node, pipeline

LONG, SHORT = 60_000, 30


def one(a: Any, **keys: Any) -> Pipeline:
    return pipeline([node("a", {"x": "x"}, **keys)], a=a)


def test_a_node_that_does_not_answer_in_time_fails() -> None:
    gate = Gate()
    demo = one(gate, timeout_ms=SHORT)
    began = time.monotonic()
    error = demo.ask(1).error()
    assert time.monotonic() - began >= SHORT / 1000
    assert error.kind == "timeout"
    assert str(error).startswith("node `a`: no answer after ")
    assert str(error).endswith(" ms (timeout_ms)")
    gate.open()


def test_on_error_takes_the_place_of_an_answer_that_is_late() -> None:
    gate = Gate()
    demo = one(gate, timeout_ms=SHORT, on_error=7)
    asked = demo.ask(1)
    assert asked.rows() == [7]
    gate.open()
    demo.await_late("a", 1)
    assert len(asked.answers) == 1


def test_an_answer_in_time_stays() -> None:
    assert one(double, timeout_ms=LONG, on_error=7).ask(1).rows() == [2]


def test_the_callee_is_told_what_is_left() -> None:
    demo = one(double, timeout_ms=LONG)
    demo.ask(1).wait()
    [call] = demo.models.calls
    assert LONG * 1000 / 2 < call.timeout_us <= LONG * 1000


def test_a_callee_without_a_limit_is_told_so() -> None:
    demo = one(double)
    demo.ask(1).wait()
    assert demo.models.calls[0].timeout_us == 0


def test_waiting_for_a_slot_is_part_of_the_time() -> None:
    gate = Gate()
    demo = pipeline(
        [node("a", {"x": "x"}, max_in_flight=1, timeout_ms=SHORT, max_batch=1)], a=gate
    )  # fmt: skip
    error = demo.ask(1, 2).error()
    assert error.kind == "timeout"
    assert len(demo.models.calls) == 1
    gate.open()
    demo.await_idle()
    assert len(demo.models.calls) == 1


def test_a_timeout_flows_as_any_failure() -> None:
    gate = Gate()
    nodes = [node("a", {"x": "x"}, timeout_ms=SHORT), node("b", {"x": "a.y"}, on_error=7)]
    assert pipeline(nodes, a=gate).ask(1).rows() == [7]
    gate.open()


@pytest.mark.parametrize("kind", ["unavailable", "unhealthy"])
def test_a_model_that_is_not_there_is_asked_again(kind: str) -> None:
    demo = one(InTurn(fails(kind=kind), double), retries=1)
    assert demo.ask(1).rows() == [2]
    assert len(demo.models.calls) == 2


def test_other_errors_are_not_retried() -> None:
    demo = one(InTurn(fails("no"), double), retries=1)
    assert str(demo.ask(1).error()) == "node `a`: no"


def test_without_retries_an_error_is_the_answer() -> None:
    demo = one(InTurn(fails("gone", "unavailable"), double))
    assert str(demo.ask(1).error()) == "node `a`: gone"


@pytest.mark.parametrize("retries", [1, 2, 3])
def test_there_are_no_more_retries_than_declared(retries: int) -> None:
    demo = one(fails("gone", "unavailable"), retries=retries)
    assert str(demo.ask(1).error()) == "node `a`: gone"
    assert len(demo.models.calls) == 1 + retries


def test_each_part_of_a_node_has_retries_of_its_own() -> None:
    tried: dict[float, int] = {}

    def twice(x: Any) -> Any:
        tried[x[0, 0]] = tried.get(x[0, 0], 0) + 1
        return double(x=x) if tried[x[0, 0]] > 1 else fails(kind="unavailable")()

    demo = one(twice, retries=1, max_batch=1)
    assert demo.ask(1, 2, 3).rows() == [2, 4, 6]


def test_a_try_that_has_not_answered_is_joined_by_another_and_the_first_answer_wins() -> None:
    slow = Gate(lambda x: x - x)
    demo = one(InTurn(slow, double), retries=1, timeout_ms=400)
    asked = demo.ask(1)
    slow.await_calls()
    assert asked.rows() == [2]
    slow.open()
    demo.await_late("a", 1)
    assert len(asked.answers) == 1


def test_the_first_try_may_still_win() -> None:
    first, second = Gate(), Gate(lambda x: x - x)
    demo = one(InTurn(first, second), retries=1, timeout_ms=1000)
    asked = demo.ask(1)
    first.await_calls()
    second.await_calls()
    first.open()
    assert asked.rows() == [2]
    second.open()


def test_the_time_is_that_of_all_tries_together() -> None:
    gate = Gate()
    demo = one(gate, retries=3, timeout_ms=80)
    began = time.monotonic()
    assert demo.ask(1).error().kind == "timeout"
    assert 0.08 <= time.monotonic() - began < 0.8
    gate.open(4)
    demo.await_late("a", 4)
    assert len(demo.models.calls) == 4


def test_retries_without_a_time_are_for_errors_only() -> None:
    gate = Gate()
    demo = one(gate, retries=1)
    asked = demo.ask(1)
    gate.await_calls()
    gate.open()
    assert asked.rows() == [2]
    assert len(demo.models.calls) == 1


def test_retries_have_a_budget() -> None:
    """Ten at first; then one for each ten calls."""
    demo = one(fails(kind="unavailable"), retries=1)
    for _ in range(10):
        demo.ask(1).error()
    spent = len(demo.models.calls)
    assert 20 <= spent <= 21
    for _ in range(100):
        demo.ask(1).error()
    assert 108 <= len(demo.models.calls) - spent <= 111


def test_the_budget_is_shared_by_the_requests_of_a_node_alone() -> None:
    gone = fails(kind="unavailable")
    nodes = [node("a", {"x": "x"}, retries=1, on_error=0), node("b", {"x": "a.y"}, retries=1)]
    demo = pipeline(nodes, a=gone, b=InTurn(gone, double))
    for _ in range(30):
        demo.ask(1).wait()
    assert len(demo.models.of("a")) < 50
    assert len(demo.models.of("b")) == 31


def test_a_hedge_is_a_second_identical_call() -> None:
    slow = Gate(lambda x: x - x)
    demo = one(InTurn(slow, double), hedge_ms=SHORT)
    asked = demo.ask(1, 2)
    assert asked.rows() == [2, 4]
    first, second = demo.models.calls
    assert np.array_equal(first.inputs["x"], second.inputs["x"])
    slow.open()
    demo.await_late("a", 1)


def test_an_answer_in_time_is_not_hedged() -> None:
    demo = one(double, hedge_ms=LONG)
    assert demo.ask(1).rows() == [2]
    assert len(demo.models.calls) == 1


def test_there_is_one_hedge() -> None:
    gate = Gate()
    demo = one(gate, hedge_ms=5, timeout_ms=150)
    demo.ask(1).error()
    assert len(demo.models.calls) == 2
    gate.open(2)


def test_a_hedge_uses_up_no_retry() -> None:
    slow, gone = Gate(), Gate(fails(kind="unavailable"))
    demo = one(InTurn(slow, gone, double), hedge_ms=5, retries=1)
    asked = demo.ask(1)
    gone.await_calls()
    gone.open()
    assert asked.rows() == [2]
    assert len(demo.models.calls) == 3
    slow.open()


def test_a_hedge_that_finds_nobody_leaves_the_first_call_be() -> None:
    slow, gone = Gate(), Gate(fails(kind="unavailable"))
    demo = one(InTurn(slow, gone), hedge_ms=5)
    asked = demo.ask(1)
    gone.await_calls()
    gone.open()
    slow.open()
    assert asked.rows() == [2]
