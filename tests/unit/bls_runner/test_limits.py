"""`quorum`, `after`, `deadline_ms` and `max_pending`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from bls_graphs import Gate, Pipeline, above, fails, node, pipeline


def count(**inputs: Any) -> Any:
    """How many inputs there are beside `all`, and in the hundreds their sum."""
    found = [value for name, value in inputs.items() if name != "all"]
    return np.full_like(inputs["all"], len(found)) + 100 * sum(found)


def poll(need: int, *, branch: dict[str, Any] | None = None, **functions: Any) -> Pipeline:
    """`tell` goes on when `need` of a, b and c have answered."""
    of = ["a", "b", "c"]
    keys = branch or {}
    tell = node("tell", {"all": "x", **{n: f"{n}.y?" for n in of}}, quorum={"need": need, "of": of})
    return pipeline([*(node(n, {"x": "x"}, **keys) for n in of), tell], tell=count, **functions)


def test_a_quorum_goes_on_without_those_that_are_late() -> None:
    gate = Gate()

    def a(x: Any) -> Any:
        gate.await_calls()
        return 2 * x

    demo = poll(2, a=a, c=gate)
    assert demo.ask(1).rows() == [402]
    gate.open()
    demo.await_late("c", 1)


def test_a_quorum_goes_on_without_those_that_failed() -> None:
    late = Gate()
    demo = poll(2, a=fails(), c=late)
    asked = demo.ask(1)
    late.await_calls()
    assert not asked.is_answered
    late.open()
    assert asked.rows() == [402]


def test_those_that_are_done_all_count() -> None:
    gates = {name: Gate() for name in "abc"}
    demo = poll(3, **gates)
    asked = demo.ask(1)
    for gate in gates.values():
        gate.open()
    assert asked.rows() == [603]


def test_a_quorum_that_cannot_be_reached_fails_at_once() -> None:
    gate = Gate()
    demo = poll(2, a=fails("no a"), b=fails("no b"), c=gate)
    error = demo.ask(1).error()
    assert error.kind == "quorum"
    assert str(error).startswith(
        "node `tell`: 0 of 3 nodes have answered, it needs 2: node `a`: no a"
    )
    gate.open()


@pytest.mark.parametrize("keys", [{"required": False}, {"when": above("x", 9)}], ids=str)
def test_a_node_that_left_nothing_has_not_answered(keys: dict[str, Any]) -> None:
    demo = poll(1, branch=keys, a=fails(), b=fails(), c=fails())
    assert demo.ask(1).error().kind == "quorum"


def test_a_failed_quorum_is_absorbed_as_any_failure() -> None:
    of = ["a", "b"]
    tell = node(
        "tell", {"all": "x", "a": "a.y?", "b": "b.y?"}, quorum={"need": 1, "of": of}, on_error=7
    )  # fmt: skip
    demo = pipeline([*(node(n, {"x": "x"}) for n in of), tell], a=fails(), b=fails())
    assert demo.ask(1, 2).rows() == [7, 7]


def test_a_quorum_waits_for_what_is_no_part_of_it() -> None:
    gate = Gate()
    of = ["a", "b"]
    tell = node("tell", {"all": "first.y", "a": "a.y?", "b": "b.y?"}, quorum={"need": 2, "of": of})
    demo = pipeline(
        [node("first", {"x": "x"}), *(node(n, {"x": "x"}) for n in of), tell],
        first=gate, tell=count,
    )  # fmt: skip
    asked = demo.ask(1)
    gate.await_calls()
    assert not asked.is_answered
    gate.open()
    assert asked.rows() == [402]


def test_a_failure_of_what_is_no_part_of_it_fails_it() -> None:
    of = ["a", "b"]
    tell = node("tell", {"all": "first.y", "a": "a.y?", "b": "b.y?"}, quorum={"need": 1, "of": of})
    demo = pipeline(
        [node("first", {"x": "x"}), *(node(n, {"x": "x"}) for n in of), tell],
        first=fails(), tell=count,
    )  # fmt: skip
    assert str(demo.ask(1).error()) == "node `first`: no"


def test_after_waits_without_reading() -> None:
    gate = Gate()
    demo = pipeline([node("a", {"x": "x"}), node("b", {"x": "x"}, after=["a"])], a=gate)
    asked = demo.ask(1)
    gate.await_calls()
    assert demo.models.called() == ["a"]
    gate.open()
    assert asked.rows() == [2]
    assert demo.models.called() == ["a", "b"]


def test_a_failure_flows_along_after() -> None:
    demo = pipeline([node("a", {"x": "x"}), node("b", {"x": "x"}, after=["a"])], a=fails())
    assert str(demo.ask(1).error()) == "node `a`: no"


def test_absence_does_not_flow_along_after() -> None:
    first = node("a", {"x": "x"}, when=above("x", 1))
    demo = pipeline([first, node("b", {"x": "x"}, after=["a"])])
    assert demo.ask(1, 2).rows() == [2, 4]
    assert demo.ask(0, 1).rows() == [0, 2]


def test_after_a_node_that_is_not_required_waits_only() -> None:
    first = node("a", {"x": "x"}, required=False)
    demo = pipeline([first, node("b", {"x": "x"}, after=["a"])], a=fails())
    assert demo.ask(1).rows() == [2]


def test_no_node_is_given_more_than_what_remains() -> None:
    gate = Gate()
    nodes = [node("a", {"x": "x"}, timeout_ms=60_000), node("b", {"x": "x"})]
    demo = pipeline(nodes, {"p": "a.y", "q": "b.y"}, deadline_ms=50, a=gate, b=gate)
    began = time.monotonic()
    error = demo.ask(1).error()
    assert 0.05 <= time.monotonic() - began < 5
    assert error.kind == "deadline"
    assert str(error).endswith("ms (deadline_ms)")
    assert all(0 < call.timeout_us <= 50_000 for call in demo.models.calls)
    gate.open(2)


def test_a_node_s_own_time_counts_where_it_is_shorter() -> None:
    gate = Gate()
    demo = pipeline([node("a", {"x": "x"}, timeout_ms=20)], deadline_ms=60_000, a=gate)
    assert demo.ask(1).error().kind == "timeout"
    gate.open()


def test_no_further_node_starts_after_the_deadline() -> None:
    gate = Gate()
    nodes = [node("a", {"x": "x"}, on_error=3), node("b", {"x": "a.y"}, on_error=7)]
    demo = pipeline(nodes, deadline_ms=30, a=gate)
    assert demo.ask(1).rows() == [7]
    assert demo.models.called() == ["a"]
    gate.open()


def test_a_node_that_was_not_started_says_so() -> None:
    gate = Gate()
    nodes = [node("a", {"x": "x"}, on_error=3), node("b", {"x": "a.y"})]
    demo = pipeline(nodes, deadline_ms=30, a=gate)
    error = demo.ask(1).error()
    assert str(error) == "node `b`: not started, for deadline_ms is over"
    assert error.kind == "deadline"
    gate.open()


def test_a_request_too_many_is_refused_at_once() -> None:
    gate = Gate()
    demo = pipeline([node("a", {"x": "x"})], max_pending=2, a=gate)
    under_way = [demo.ask(1), demo.ask(2)]
    refused = demo.ask(3)
    assert refused.is_answered
    assert str(refused.error()) == "2 requests are under way (max_pending)"
    assert refused.error().kind == "unavailable"
    gate.open(2)
    assert [asked.rows() for asked in under_way] == [[2], [4]]


@pytest.mark.parametrize("function", [lambda x: 2 * x, fails()], ids=["answered", "failed"])
def test_a_request_that_is_answered_makes_room(function: Any) -> None:
    demo = pipeline([node("a", {"x": "x"})], max_pending=1, a=function)
    for _ in range(20):
        asked = demo.ask(1)
        asked.wait()
        assert "max_pending" not in str(asked.answers[0])
