"""`switch`: each row goes to the first branch whose condition holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bls_graphs import Gate, above, fails, flat, node, pipeline, ref, switch, tensor


def branches(first: Any, **keys: Any) -> list[Any]:
    """`a` where `first` holds, else `b`; as the compiler writes conditions."""
    return [
        node("a", {"x": "x"}, when=first, **keys),
        node("b", {"x": "x"}, when=["not", first], **keys),
        switch("chosen", "a", "b", **{k: v for k, v in keys.items() if k == "outputs"}),
    ]


def add(number: float) -> Any:
    return lambda x: x + np.float32(number)


def test_rows_go_to_different_branches_and_come_back_in_order() -> None:
    demo = pipeline(branches(above("x", 1)), a=add(10), b=add(20))
    assert demo.ask(2, 1, 3, 0).rows() == [12, 21, 13, 20]
    assert flat(demo.models.of("a")[0].inputs["x"]) == [2, 3]
    assert flat(demo.models.of("b")[0].inputs["x"]) == [1, 0]


def test_a_branch_that_no_row_takes_is_not_called() -> None:
    demo = pipeline(branches(above("x", 1)), a=add(10), b=add(20))
    assert demo.ask(2, 3).rows() == [12, 13]
    assert demo.models.called() == ["a"]


def test_without_else_a_row_may_be_absent() -> None:
    nodes = [
        node("a", {"x": "x"}, when=above("x", 5)),
        node("b", {"x": "x"}, when=["and", ["not", above("x", 5)], above("x", 3)]),
        switch("chosen", "a", "b"),
        node("read", {"all": "x", "x": "chosen.y?"}),
    ]
    demo = pipeline(nodes, read=lambda all, x=None: -all if x is None else x)
    assert demo.ask(1, 6, 4, 2).rows() == [-1, 12, 8, -2]
    assert demo.ask(1, 2).rows() == [-1, -2]


def test_a_failure_of_the_branch_taken_is_the_switch_s_own() -> None:
    demo = pipeline(branches(above("x", 1)), b=fails())
    assert demo.ask(2, 3).rows() == [4, 6]
    assert str(demo.ask(2, 1).error()) == "node `b`: no"


def test_a_failed_branch_answers_at_once() -> None:
    gate = Gate()
    demo = pipeline(branches(above("x", 1)), a=gate, b=fails())
    assert str(demo.ask(2, 1).error()) == "node `b`: no"
    gate.open()


def test_a_switch_with_on_error_fills_the_rows_that_failed() -> None:
    nodes = branches(above("x", 1))
    nodes[-1] = switch("chosen", "a", "b", on_error=-1)
    demo = pipeline(nodes, b=fails())
    assert demo.ask(2, 1, 3).rows() == [4, -1, 6]
    assert demo.ask(0, 1).rows() == [-1, -1]


def test_a_row_that_is_taken_does_not_care_for_later_conditions() -> None:
    """`first` takes it; that `looked_at` has failed matters to the others alone."""
    is_first, is_second = above("x", 1), above("looked_at.y", 0)
    nodes = [
        node("looked_at", {"x": "x"}),
        node("a", {"x": "x"}, when=is_first),
        node("b", {"x": "x"}, when=["and", ["not", is_first], is_second]),
        node("c", {"x": "x"}, when=["and", ["not", is_first], ["not", is_second]]),
        switch("chosen", "a", "b", "c", on_error=-1),
    ]
    demo = pipeline(nodes, looked_at=fails())
    assert demo.ask(2, 0, 3).rows() == [4, -1, 6]


def test_branches_of_different_shape_fail_the_switch_where_both_are_taken() -> None:
    free = [tensor("y", dims=[-1])]
    demo = pipeline(
        branches(above("x", 1), outputs=free),
        a=lambda x: np.repeat(x, 2, axis=1), b=lambda x: x,
    )  # fmt: skip
    assert demo.ask(2, 3).outputs()["y"].shape == (2, 2)
    message = "node `chosen`: its rows differ in shape: [2], [1]"
    assert str(demo.ask(2, 1).error()) == message


def test_conditions_may_look_at_what_another_node_gave() -> None:
    seen = ["==", ref("look.y"), ["value", 4]]
    nodes = [node("look", {"x": "x"}), *branches(seen)]
    demo = pipeline(nodes, a=add(10), b=add(20))
    assert demo.ask(2, 1).rows() == [12, 21]


@pytest.mark.parametrize("rows", [(2.0,), (1.0,), (1.0, 2.0)])
def test_a_switch_calls_nothing_itself(rows: tuple[float, ...]) -> None:
    demo = pipeline(branches(above("x", 1)))
    demo.ask(*rows).wait()
    assert "chosen" not in demo.models.called()
    assert demo.plan.calls_at_once == 8
