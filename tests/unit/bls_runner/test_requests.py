"""Requests: when nodes start, side by side in one runner, one answer each, what is asked for."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np
from bls_calls import NodeError
from bls_graphs import (
    Asked,
    Failed,
    Gate,
    Pipeline,
    above,
    data,
    fails,
    flat,
    floats,
    node,
    pipeline,
    reference,
    switch,
    tensor,
)


def test_nodes_that_need_nothing_of_each_other_run_side_by_side() -> None:
    gates = {name: Gate() for name in "abcd"}
    nodes = [node(name, {"x": "x"}) for name in gates]
    demo = pipeline(nodes, {n: f"{n}.y" for n in gates}, **gates)
    asked = demo.ask(1)
    for gate in gates.values():
        gate.await_calls()
    for gate in gates.values():
        gate.open()
    assert [asked.rows(name) for name in gates] == [[2]] * 4


def test_a_node_starts_the_moment_its_inputs_exist() -> None:
    """`after_a` does not wait for `b`, which it has nothing to do with."""
    b, after_a = Gate(), Gate()
    nodes = [
        node("a", {"x": "x"}),
        node("b", {"x": "x"}),
        node("after_a", {"x": "a.y"}),
        node("join", {"x": "after_a.y", "z": "b.y"}),
    ]
    demo = pipeline(nodes, b=b, after_a=after_a, join=lambda x, z: x + z)
    asked = demo.ask(1)
    b.await_calls()
    after_a.await_calls()
    after_a.open()
    assert demo.models.of("join") == []
    b.open()
    assert asked.rows() == [6]


def test_asking_does_not_wait_for_an_answer() -> None:
    gate = Gate()
    demo = pipeline([node("a", {"x": "x"})], a=gate)
    asked = demo.ask(1)
    gate.await_calls()
    assert not asked.is_answered
    assert demo.models.calls[0].thread != threading.get_ident()
    gate.open()
    asked.wait()


def test_requests_run_side_by_side_in_one_runner() -> None:
    gate = Gate()
    demo = pipeline([node("a", {"x": "x"}), node("b", {"x": "a.y"})], a=gate)
    asked = [demo.ask(number) for number in (1, 2, 3)]
    gate.await_calls(3)
    gate.open(3)
    assert [one.rows() for one in asked] == [[4], [8], [12]]


def test_a_slow_request_holds_up_no_other() -> None:
    gate = Gate()

    def slow_if_one(x: Any) -> Any:
        return gate(x=x) if x[0, 0] == 1 else 2 * x

    demo = pipeline([node("a", {"x": "x"})], a=slow_if_one)
    slow = demo.ask(1)
    gate.await_calls()
    assert [demo.ask(number).rows() for number in (2, 3)] == [[4], [6]]
    gate.open()
    assert slow.rows() == [2]


def test_only_what_the_asked_outputs_rest_on_is_run() -> None:
    nodes = [
        node("a", {"x": "x"}),
        node("b", {"x": "a.y"}),
        node("c", {"x": "x"}, when=above("a.y", 0)),
        node("d", {"x": "x"}, after=["a"]),
        node("alone", {"x": "x"}),
    ]
    shown = {name: f"{name}.y" for name in "bcd"} | {"alone": "alone.y"}
    for wanted, run in [("b", "ab"), ("c", "ac"), ("d", "ad")]:
        demo = pipeline(nodes, shown)
        assert list(demo.ask(1, wanted=[wanted]).outputs()) == [wanted]
        assert demo.models.called() == list(run)
    demo = pipeline(nodes, shown)
    demo.ask(1, wanted=["alone"]).outputs()
    assert demo.models.called() == ["alone"]


def test_a_failure_of_what_was_not_asked_for_is_no_error() -> None:
    """`a` is an output too, but `b` alone is asked for, and it absorbs."""
    nodes = [node("a", {"x": "x"}), node("b", {"x": "a.y"}, on_error=7)]
    demo = pipeline(nodes, {"p": "a.y", "q": "b.y"}, a=fails())
    assert demo.ask(1, wanted=["q"]).rows("q") == [7]
    assert str(demo.ask(1).error()) == "node `a`: no"


def test_a_long_chain_that_is_skipped_is_no_deep_recursion() -> None:
    chain = [node("n0", {"x": "x"}, when=above("x", 1))]
    chain += [node(f"n{i}", {"x": f"n{i - 1}.y"}) for i in range(1, 2000)]
    demo = pipeline(chain)
    assert str(demo.ask(1).error()) == "output `y` has no value on some rows"


# Many requests at once, of every kind, against what the pipeline means row by row.

HANGS_S = 1.5

STORM = data(
    [
        node("a", {"x": "x"}, on_error=-1, timeout_ms=500, max_in_flight=100),
        node("b", {"x": "x"}, max_in_flight=3),
        node("low", {"x": "a.y"}, when=["not", above("x", 500)], max_in_flight=2),
        node("high", {"x": "b.y"}, when=above("x", 500)),
        switch("s", "low", "high"),
        node("lax", {"x": "b.y"}, required=False),
        node("join", {"x": "x", "s": "s.y", "lax": "lax.y?"}),
    ],
    {"id": "join.y", "s": "s.y"},
    inputs=[tensor("x")],
)


def pause(x: float) -> float:
    time.sleep(random.random() / 500)
    return x


def raises_for(digit: int, times: float) -> Any:
    """Multiplies, but fails for numbers with that last digit."""

    def function(x: float) -> float:
        if int(pause(x)) % 10 == digit:
            raise NodeError("no")
        return times * x

    return function


ROWS = {
    "a": raises_for(3, 2),
    "b": raises_for(4, 10),
    "low": lambda x: pause(x) + 1,
    "high": lambda x: pause(x) + 2,
    "lax": raises_for(0, 1),
    "join": lambda x, s, lax=-5: 1_000_000 * x + s + lax,
}


def storm_model(name: str) -> Any:
    def function(**inputs: Any) -> Any:
        if name == "a" and inputs["x"][0, 0] % 50 == 49:
            time.sleep(HANGS_S)
        given = {key: float(array[0, 0]) for key, array in inputs.items()}
        return np.array([[ROWS[name](**given)]], np.float32)

    return function


def expected(number: float) -> Any:
    """A call of `a` that hangs is as one that fails."""

    def a(x: float) -> float:
        if x % 50 == 49:
            raise NodeError("late")
        return ROWS["a"](x)

    return reference(STORM, {**ROWS, "a": a}, {"x": number})


def test_every_request_gets_its_own_right_answer_exactly_once() -> None:
    demo = Pipeline(STORM, **{name: storm_model(name) for name in ROWS})
    numbers = list(range(480))
    asked: dict[int, Asked] = {}

    def client(mine: list[int]) -> None:
        for number in mine:
            asked[number] = demo.ask(number)
            asked[number].wait()

    clients = [threading.Thread(target=client, args=(numbers[i::64],)) for i in range(64)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    for number, request in asked.items():
        want, got = expected(number), request.answers[0]
        if isinstance(want, Failed):
            assert str(got) == f"node `{want.node}`: no"
        else:
            assert not isinstance(got, NodeError), got
            assert {name: flat(array)[0] for name, array in got.items()} == {
                name: np.float32(value) for name, value in want.items()
            }
    demo.await_idle()
    assert [len(request.answers) for request in asked.values()] == [1] * len(numbers)
    assert demo.slots("a").late_total >= sum(number % 50 == 49 for number in numbers)
    assert demo.runner.pool.count <= demo.plan.calls_at_once


def test_calls_that_race_with_their_timeouts_answer_once() -> None:
    """Each call takes about as long as it may: one or the other, never both or none."""

    def close(x: Any) -> Any:
        time.sleep(0.005 * random.random() * 2)
        return 2 * x

    nodes = [
        node("a", {"x": "x"}, timeout_ms=5, retries=1, hedge_ms=3, on_error=-1, max_in_flight=4),
        node("b", {"x": "a.y", "z": "x"}, timeout_ms=6, on_error=-2, max_in_flight=3),
        node("c", {"x": "x", "y": "b.y"}),
    ]
    demo = pipeline(
        nodes, a=close, b=lambda x, z: close(x), c=lambda x, y: 1000 * x + y, deadline_ms=12
    )  # fmt: skip
    asked = {number: demo.ask(number) for number in range(300)}
    for number, request in asked.items():
        answer = request.wait()
        if not isinstance(answer, NodeError):
            assert (flat(answer["y"])[0] - 1000 * number) in (4 * number, -1, -2)
    demo.await_idle()
    assert [len(request.answers) for request in asked.values()] == [1] * 300


def test_two_nodes_that_give_each_other_s_requests_up_do_not_deadlock() -> None:
    """Calls that become late fail those of other requests, which hold locks of their own."""
    gate = Gate()
    nodes = [node(n, {"x": "x"}, max_in_flight=1, timeout_ms=15, on_error=0) for n in "ab"]
    demo = pipeline(nodes, {"p": "a.y", "q": "b.y"}, a=gate, b=gate)
    asked: list[Asked] = []

    def client() -> None:
        asked.extend(demo.ask(number) for number in range(50))

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert len(asked) == 400
    assert {flat(request.outputs()["p"])[0] for request in asked} == {0}
    gate.open(10_000)
    demo.await_idle()
    assert flat(demo.ask(x=floats(3)).outputs()["p"]) == [6]
