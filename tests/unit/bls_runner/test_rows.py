"""What goes to a model and what comes back: rows, batches, shapes, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bls_graphs import Pipeline, data, flat, floats, node, pipeline, tensor, texts
from bls_values import Held


def test_rows_go_to_the_model_as_one_batch_and_come_back_in_order() -> None:
    demo = pipeline([node("a", {"x": "x"})])
    assert demo.ask(1, 2, 3).rows() == [2, 4, 6]
    assert [flat(call.inputs["x"]) for call in demo.models.calls] == [[1, 2, 3]]


def test_inputs_are_named_as_the_callee_names_them() -> None:
    demo = pipeline([node("a", {"left": "x", "right": "x"})], a=lambda left, right: left + right)
    assert demo.ask(1, 2).rows() == [2, 4]


def test_more_rows_than_a_callee_takes_go_in_several_calls() -> None:
    demo = pipeline([node("a", {"x": "x"}, max_batch=2)])
    assert demo.ask(1, 2, 3, 4, 5).rows() == [2, 4, 6, 8, 10]
    assert sorted(len(call.inputs["x"]) for call in demo.models.calls) == [1, 2, 2]


def test_a_callee_without_batch_axis_is_called_row_by_row() -> None:
    demo = pipeline([node("a", {"x": "x"}, max_batch=0)])
    answer = demo.ask(1, 2, 3).outputs()["y"]
    assert answer.shape == (3, 1)
    assert flat(answer) == [2, 4, 6]
    assert [call.inputs["x"].shape for call in demo.models.calls] == [(1,)] * 3


@pytest.mark.parametrize(
    ("max_batch", "seen"),
    [pytest.param(0, (3,), id="a callee without"), pytest.param(4, (1, 3), id="a callee with")],
)
def test_a_pipeline_without_batch_axis_has_one_row(max_batch: int, seen: tuple[int, ...]) -> None:
    wide = tensor("y", dims=[3])
    demo = pipeline(
        [node("a", {"x": "x"}, max_batch=max_batch, outputs=[wide])],
        batched=False,
        inputs=[tensor("x", dims=[3])],
    )
    assert flat(demo.ask(x=np.ones((1, 3), np.float32)).outputs()["y"]) == [2, 2, 2]
    assert demo.models.calls[0].inputs["x"].shape == seen


class TritonTensor:
    """As much of Triton's as the runner looks at; reading it as an array is counted."""

    def __init__(self, array: Any) -> None:
        self._array, self.reads = array, 0

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def as_numpy(self) -> Any:
        self.reads += 1
        return self._array


def test_text_that_is_only_passed_on_is_never_decoded() -> None:
    given, made = TritonTensor(texts(b"a")), TritonTensor(texts(b"b"))
    word = tensor("y", "string")
    demo = pipeline(
        [node("a", {"t": "t"}, outputs=[word]), node("b", {"t": "a.y"}, outputs=[word])],
        inputs=[tensor("t", "string")],
        a=lambda t: {"y": Held(made)},
        b=lambda t: {"y": t},
    )
    held = Held(given)
    assert demo.ask(t=held).outputs()["y"].tensor is made
    assert demo.models.of("a")[0].inputs["t"] is held
    assert (given.reads, made.reads) == (0, 0)


def test_a_tensor_of_triton_is_checked_as_an_array_is() -> None:
    made = TritonTensor(np.zeros((1, 1)))
    demo = pipeline([node("a", {"x": "x"})], a=lambda x: {"y": Held(made)})
    assert str(demo.ask(1).error()) == "node `a`: its output `y` is float64, expected float32"


WIDE = [tensor("y", dims=[2, -1])]


@pytest.mark.parametrize(
    ("outputs", "answer", "message"),
    [
        pytest.param(None, {}, "it gave no output `y`", id="no output"),
        pytest.param(None, {"z": floats(1, 2)}, "it gave no output `y`", id="another output"),
        pytest.param(None, {"y": floats(1)},
                     "its output `y` has shape [1, 1], expected [2, 1]", id="too few rows"),
        pytest.param(None, {"y": floats(1, 2, 3)},
                     "its output `y` has shape [3, 1], expected [2, 1]", id="too many rows"),
        pytest.param(None, {"y": np.ones(2, np.float32)},
                     "its output `y` has shape [2], expected [2, 1]", id="no axis of one"),
        pytest.param(WIDE, {"y": np.ones((2, 3, 4), np.float32)},
                     "its output `y` has shape [2, 3, 4], expected [2, 2, -1]", id="wrong axis"),
        pytest.param(None, {"y": np.ones((2, 1))},
                     "its output `y` is float64, expected float32", id="wrong dtype"),
        pytest.param(None, {"y": texts(b"a", b"b")},
                     "its output `y` is object, expected float32", id="text for a number"),
        pytest.param(None, None, "TypeError: argument of type 'NoneType' is not iterable",
                     id="nothing at all"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_as_declared_fails_the_node(
    outputs: Any, answer: Any, message: str
) -> None:
    more = {"outputs": outputs} if outputs else {}
    demo = pipeline([node("a", {"x": "x"}, **more)], a=lambda x: answer)
    assert str(demo.ask(1, 2).error()) == f"node `a`: {message}"


def test_a_free_axis_takes_any_size() -> None:
    answer = np.ones((2, 2, 7), np.float32)
    demo = pipeline([node("a", {"x": "x"}, outputs=WIDE)], a=lambda x: answer)
    assert demo.ask(1, 2).outputs()["y"].shape == (2, 2, 7)


def test_rows_that_differ_in_shape_cannot_be_joined() -> None:
    demo = pipeline(
        [node("a", {"x": "x"}, max_batch=1, outputs=[tensor("y", dims=[-1])])],
        a=lambda x: np.ones((1, int(x[0, 0])), np.float32),
    )
    message = "node `a`: its rows differ in shape: [1], [2]"
    assert str(demo.ask(1, 2).error()) == message
    assert demo.ask(2, 2).outputs()["y"].shape == (2, 2)


def test_text_goes_through_as_bytes() -> None:
    demo = pipeline(
        [node("a", {"t": "t"}, outputs=[tensor("y", "string")])],
        inputs=[tensor("t", "string")],
        a=lambda t: t + b"!",
    )
    assert demo.ask(t=texts(b"a\x00", b"")).rows() == [b"a\x00!", b"!"]


def test_a_pipeline_may_show_what_it_was_given() -> None:
    demo = pipeline([node("a", {"x": "x"})], {"same": "x", "y": "a.y"})
    assert demo.ask(1, 2).rows("same") == [1, 2]
    only = demo.ask(3, wanted=["same"])
    assert only.rows("same") == [3]


def test_a_plan_of_another_schema_is_refused() -> None:
    plan = {**data([node("a", {"x": "x"})], {"y": "a.y"}), "schema": 7}
    with pytest.raises(ValueError, match=r"plan\.json has schema 7, this runner reads 1"):
        Pipeline(plan)
