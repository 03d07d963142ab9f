"""Failures flow along edges to the first node that absorbs them; else they are the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bls_calls import NodeError
from bls_graphs import (
    Asked,
    Gate,
    InTurn,
    Pipeline,
    above,
    data,
    double,
    fails,
    flat,
    floats,
    node,
    pipeline,
    tensor,
)


class Odd(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        pytest.param(NodeError("no"), "no", id="an error of a model"),
        pytest.param(ValueError("bad"), "ValueError: bad", id="an exception"),
        pytest.param(KeyError("x"), "KeyError: 'x'", id="a lookup"),
        pytest.param(Odd("odd"), "Odd: odd", id="what is no Exception"),
        pytest.param(SystemExit(3), "SystemExit: 3", id="an exit"),
    ],
)
def test_whatever_a_call_raises_is_an_error_that_names_the_node(
    problem: BaseException, message: str
) -> None:
    def raises(**_: Any) -> Any:
        raise problem

    demo = pipeline([node("a", {"x": "x"})], a=InTurn(raises, double))
    assert str(demo.ask(1).error()) == f"node `a`: {message}"
    assert demo.ask(1).rows() == [2]


def test_the_model_is_named_beside_the_node_where_it_has_another_name() -> None:
    demo = pipeline([node("a", {"x": "x"}, model="big")], a=fails())
    assert str(demo.ask(1).error()) == "node `a` (model `big`): no"


def test_kind_and_code_of_an_error_stay() -> None:
    def raises(**_: Any) -> Any:
        raise NodeError("full", "unavailable", code=14)

    error = pipeline([node("a", {"x": "x"})], a=raises).ask(1).error()
    assert (error.kind, error.code) == ("unavailable", 14)


def test_a_failed_input_fails_the_node_without_running_it() -> None:
    demo = pipeline([node("a", {"x": "x"}), node("b", {"x": "a.y"})], a=fails())
    assert str(demo.ask(1).error()) == "node `a`: no"
    assert demo.models.called() == ["a"]


def test_an_optional_input_that_failed_fails_the_node_too() -> None:
    demo = pipeline([node("a", {"x": "x"}), node("b", {"x": "x", "o": "a.y?"})], a=fails())
    assert str(demo.ask(1).error()) == "node `a`: no"
    assert demo.models.called() == ["a"]


def test_on_error_takes_the_place_of_a_failure() -> None:
    demo = pipeline([node("a", {"x": "x"}, on_error=7), node("b", {"x": "a.y"})], a=fails())
    assert demo.ask(1, 2).rows() == [14, 14]


def test_on_error_absorbs_what_failed_before() -> None:
    demo = pipeline(
        [node("a", {"x": "x"}), node("b", {"x": "a.y"}), node("c", {"x": "b.y"}, on_error=7)],
        a=fails(),
    )
    assert demo.ask(1).rows() == [7]
    assert demo.models.called() == ["a"]


def test_the_first_node_with_on_error_absorbs() -> None:
    demo = pipeline(
        [node("a", {"x": "x"}), node("b", {"x": "a.y"}, on_error=3),
         node("c", {"x": "b.y"}, on_error=7)],
        a=fails(),
    )  # fmt: skip
    assert demo.ask(1).rows() == [6]


def test_a_node_is_a_unit_all_its_rows_fail() -> None:
    demo = pipeline([node("a", {"x": "x"}, max_batch=1, on_error=7)], a=InTurn(fails(), double))
    assert demo.ask(1, 2, 3).rows() == [7, 7, 7]


def test_only_rows_that_ran_fail() -> None:
    nodes = [
        node("a", {"x": "x"}, when=above("x", 1), on_error=7),
        node("read", {"all": "x", "o": "a.y?"}),
    ]
    demo = pipeline(nodes, a=fails(), read=lambda all, o=None: all if o is None else o)
    assert demo.ask(0, 2, 1, 3).rows() == [0, 7, 1, 7]


def test_defaults_are_merged_with_rows_that_have_a_value() -> None:
    nodes = [
        node("a", {"x": "x"}, when=above("x", 1)),
        node("b", {"x": "x"}, when=["not", above("x", 1)]),
        node("c", {"all": "x", "o": "a.y?"}, on_error=7),
    ]
    demo = pipeline(nodes, a=fails(), c=lambda all, **_: 10 * all)
    assert demo.ask(0, 2, 1).rows() == [0, 7, 10]


@pytest.mark.parametrize(
    ("output", "default", "value"),
    [
        pytest.param(tensor("y"), 0.5, [[0.5], [0.5]], id="one element"),
        pytest.param(tensor("y", dims=[3]), 0.5, [[0.5] * 3] * 2, id="one element for an axis"),
        pytest.param(tensor("y", dims=[2]), [1, 2], [[1, 2], [1, 2]], id="the shape of a row"),
        pytest.param(tensor("y", dims=[-1]), 4, [[4], [4]], id="a free axis is one"),
        pytest.param(tensor("y", dims=[-1]), [4, 5], [[4, 5]] * 2, id="a list for a free axis"),
        pytest.param(tensor("y", "int64"), 3, [[3], [3]], id="an integer"),
        pytest.param(tensor("y", "bool"), True, [[True], [True]], id="a truth value"),
        pytest.param(tensor("y", "string"), "ä", [["ä".encode()]] * 2, id="text"),
        pytest.param(tensor("y", "string", [2]), ["a", "b"], [[b"a", b"b"]] * 2, id="texts"),
        pytest.param(tensor("y", "string", [2]), "a", [[b"a", b"a"]] * 2, id="text for an axis"),
    ],
)
def test_a_default_fills_the_shape_of_a_row(output: Any, default: Any, value: Any) -> None:
    demo = pipeline([node("a", {"x": "x"}, outputs=[output], on_error=default)], a=fails())
    array = demo.ask(1, 2).outputs()["y"]
    assert array.tolist() == value
    assert array.dtype == demo.plan.nodes["a"].outputs[0].numpy


@pytest.mark.parametrize(
    ("output", "default", "shape"),
    [
        pytest.param(tensor("y", dims=[-1, 4]), [], (2, 0, 4), id="no boxes"),
        pytest.param(tensor("y", "string", [-1, -1, 2]), [[], []], (2, 2, 0, 2), id="no texts"),
    ],
)
def test_a_default_of_no_rows_has_all_the_axes(
    output: Any, default: Any, shape: tuple[int, ...]
) -> None:
    demo = pipeline([node("a", {"x": "x"}, outputs=[output], on_error=default)], a=fails())
    assert demo.ask(1, 2).outputs()["y"].shape == shape


def half_failed(default: Any) -> Pipeline:
    """`a` has failed where x > 1, and gives three values elsewhere."""
    bad = node("bad", {"x": "x"}, when=above("x", 1))
    a = node(
        "a", {"all": "x", "o": "bad.y?"}, outputs=[tensor("y", dims=[-1])], on_error=default
    )  # fmt: skip
    return pipeline([bad, a], bad=fails(), a=lambda all: np.repeat(all, 3, axis=1))


def test_one_element_takes_the_shape_of_the_rows_beside_it() -> None:
    assert half_failed(7).ask(0, 2).outputs()["y"].tolist() == [[0, 0, 0], [7, 7, 7]]


def test_a_default_of_another_shape_than_the_rows_beside_it_is_an_error() -> None:
    message = "node `a`: with `on_error` its rows differ in shape: [3], [2]"
    assert str(half_failed([7, 8]).ask(0, 2).error()) == message


def test_a_node_that_is_not_required_is_absent_where_it_failed() -> None:
    nodes = [
        node("a", {"x": "x"}, required=False),
        node("read", {"all": "x", "o": "a.y?"}),
    ]
    demo = pipeline(nodes, a=fails(), read=lambda all, o=None: all if o is None else o)
    assert demo.ask(1, 2).rows() == [1, 2]


def test_a_node_that_is_not_required_absorbs_what_failed_before() -> None:
    nodes = [
        node("bad", {"x": "x"}),
        node("a", {"x": "bad.y"}, required=False),
        node("read", {"all": "x", "o": "a.y?"}),
    ]
    demo = pipeline(nodes, bad=fails(), read=lambda all, o=None: all if o is None else o)
    assert demo.ask(1, 2).rows() == [1, 2]


def test_a_hard_failure_answers_at_once() -> None:
    """Siblings are not awaited; what they say later is dropped and counted."""
    slow = Gate()

    def bad(x: Any) -> Any:
        slow.await_calls()
        raise NodeError("no")

    demo = pipeline(
        [node("bad", {"x": "x"}), node("slow", {"x": "x"}),
         node("c", {"p": "bad.y", "x": "slow.y"})],
        bad=bad, slow=slow,
    )  # fmt: skip
    asked = demo.ask(1)
    assert str(asked.error()) == "node `bad`: no"
    slow.open()
    demo.await_late("slow", 1)
    assert demo.models.of("c") == []
    assert len(asked.answers) == 1


def test_a_failure_that_somebody_may_absorb_is_not_the_answer_yet() -> None:
    slow = Gate()
    demo = pipeline(
        [node("bad", {"x": "x"}), node("slow", {"x": "x"}),
         node("c", {"p": "bad.y", "x": "slow.y"}, on_error=7),
         node("d", {"x": "c.y", "z": "slow.y"})],
        bad=fails(), slow=slow, d=lambda x, z: x + z,
    )  # fmt: skip
    asked = demo.ask(1)
    slow.await_calls()
    slow.open()
    assert asked.rows() == [9]


def test_a_failure_of_all_rows_does_not_wait_for_the_other_inputs() -> None:
    """`c` has failed whatever `slow` says, so `d` goes on."""
    slow, after = Gate(), Gate()
    demo = pipeline(
        [node("bad", {"x": "x"}), node("slow", {"x": "x"}),
         node("c", {"p": "bad.y", "x": "slow.y"}, on_error=7), node("d", {"x": "c.y"})],
        bad=fails(), slow=slow, d=after,
    )  # fmt: skip
    asked = demo.ask(1)
    after.await_calls()
    after.open()
    assert asked.rows() == [14]
    slow.open()


def test_of_several_errors_the_first_is_told() -> None:
    slow = Gate(fails("late"))
    demo = pipeline(
        [node("a", {"x": "x"}), node("b", {"x": "x"})], {"p": "a.y", "q": "b.y"},
        a=slow, b=fails("early"),
    )  # fmt: skip
    assert str(demo.ask(1).error()) == "node `b`: early"
    slow.open()


def test_an_error_of_one_request_is_not_another_s() -> None:
    def picky(x: Any) -> Any:
        if (x == 13).any():
            raise ValueError("unlucky")
        return 2 * x

    demo = pipeline([node("a", {"x": "x"})], a=picky)
    asked = [demo.ask(number) for number in (12, 13, 14)]
    assert asked[0].rows() == [24]
    assert str(asked[1].error()) == "node `a`: ValueError: unlucky"
    assert asked[2].rows() == [28]


def test_a_bad_request_leaves_room_for_its_neighbours() -> None:
    """A call that nobody waits for any more is not a sign that its model hangs."""
    slow = Gate()

    def bad(x: Any) -> Any:
        if (x < 0).any():
            slow.await_calls()
            raise NodeError("no")
        return x

    demo = pipeline(
        [node("bad", {"x": "x"}), node("slow", {"x": "x"}, max_in_flight=1, timeout_ms=60_000)],
        {"p": "bad.y", "y": "slow.y"},
        bad=bad, slow=slow,
    )  # fmt: skip
    refused = demo.ask(-1)
    waits = demo.ask(1)
    assert str(refused.error()) == "node `bad`: no"
    comes_later = demo.ask(2)
    slow.open(3)
    assert [waits.rows(), comes_later.rows()] == [[2], [4]]


def test_an_answer_that_cannot_be_sent_leaves_as_an_error() -> None:
    demo, asked = pipeline([node("a", {"x": "x"})]), Asked()

    def send(answer: Any) -> None:
        if not isinstance(answer, NodeError):
            raise TypeError("no such dtype")
        asked.take(answer)

    demo.runner.start({"x": floats(1)}, 1, ["y"], demo.models, send)
    assert str(asked.error()) == "its answer cannot be sent: TypeError: no such dtype"
    assert demo.ask(1).rows() == [2]


def test_what_the_runner_itself_does_wrong_is_an_error_too() -> None:
    """A plan that shows what no node gives: the request is answered, and so is the next."""
    plan = data([node("a", {"x": "x"})], {"y": "a.gone"})
    demo = Pipeline(plan)
    assert str(demo.ask(1).error()) == "KeyError: 'gone'"
    assert str(demo.ask(1).error()) == "KeyError: 'gone'"
    assert flat(demo.models.calls[1].inputs["x"]) == [1]
