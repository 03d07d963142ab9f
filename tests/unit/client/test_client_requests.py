"""From what a caller passes to a request, and from an answer to what a caller reads."""

from __future__ import annotations

import numpy as np
import pytest

from mmctl.client.requests import readable, request_for, with_declared_texts
from mmctl.errors import InputError
from mmctl.inference import InferResponse
from mmctl.tensors import Signature, TensorSpec, parse_type

SIGNATURE = Signature(
    inputs=(
        TensorSpec("text", parse_type("bytes")),
        TensorSpec("x", parse_type("fp32[2]")),
        TensorSpec("k", parse_type("int32"), optional=True),
    ),
    outputs=(TensorSpec("label", parse_type("bytes")),),
    max_batch=2,
)
ROW = {"text": "a", "x": [1, 2]}


def test_a_request_has_the_models_types_order_and_batch_axis() -> None:
    request = request_for("tag", {"x": [1, 2], "text": "é"}, SIGNATURE, version="3")
    assert list(request.inputs) == ["text", "x"]
    assert request.inputs["text"].tolist() == [["é".encode()]]
    assert request.inputs["x"].dtype == np.float32
    assert request.inputs["x"].shape == (1, 2)
    assert (request.model, request.version, request.outputs) == ("tag", "3", ())


def test_a_list_of_texts_is_as_many_rows() -> None:
    request = request_for("tag", {"text": ["a", "b"], "x": np.ones((2, 2))}, SIGNATURE)
    assert request.inputs["text"].shape == (2, 1)


@pytest.mark.parametrize(
    ("inputs", "message", "hint"),
    [
        pytest.param(
            {"txt": "a", "x": [1, 2]}, "no input `txt`", "did you mean `text`?", id="unknown"
        ),
        pytest.param({"a": 1, "b": 2}, "no input `a`, `b`", "known here", id="all unknown at once"),
        pytest.param({}, "no value for `text`, `x`", "it takes text: bytes, x: fp32[2]", id="none"),
        pytest.param({"text": "a"}, "no value for `x`", "it takes", id="missing"),
        pytest.param({**ROW, "x": ["a", "b"]}, "input `x`: `'a'` is text", "numbers", id="value"),
        pytest.param({**ROW, "x": [1]}, "input `x`: shape [1] given", "one row as [2]", id="shape"),
        pytest.param(
            {"text": ["a", "b"], "x": [1, 2]},
            "different numbers of rows: `text` 2, `x` 1",
            "one value per row",
            id="rows",
        ),
        pytest.param(
            {"text": ["a"] * 3, "x": np.ones((3, 2))},
            "3 rows given, one request takes 1 to 2",
            "split",
            id="too many rows",
        ),
        pytest.param(
            {"text": np.empty((0, 1), object), "x": np.empty((0, 2))},
            "0 rows given",
            "split",
            id="no rows",
        ),
    ],
)
def test_wrong_inputs_are_told(inputs: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        request_for("tag", inputs, SIGNATURE)
    assert str(caught.value).startswith("model `tag`")
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)


def test_an_unknown_output_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="no output `lable`") as caught:
        request_for("tag", ROW, SIGNATURE, outputs=["lable"])
    assert caught.value.hint == "did you mean `label`?"


def test_texts_of_an_answer_are_str_and_other_bytes_stay() -> None:
    texts = np.array([["é".encode()], [b"b"]], dtype=object)
    photo = np.array([[b"\xff\xd8"], [b"b"]], dtype=object)
    numbers = np.ones((2, 1))
    answer = readable(InferResponse({"texts": texts, "photo": photo, "numbers": numbers}, "m", "1"))
    assert answer.outputs["texts"].tolist() == [["é"], ["b"]]
    assert answer.outputs["photo"].tolist() == [[b"\xff\xd8"], [b"b"]]
    assert answer.outputs["numbers"] is numbers
    assert (answer.model, answer.version) == ("m", "1")


def test_a_declared_string_refuses_what_is_not_utf8() -> None:
    declared = Signature(inputs=(TensorSpec("text", parse_type("string")),), outputs=())
    strict = with_declared_texts(SIGNATURE, declared)
    assert request_for("tag", {"text": b"\xff", "x": [1, 2]}, SIGNATURE)
    with pytest.raises(InputError, match="not UTF-8"):
        request_for("tag", {"text": b"\xff", "x": [1, 2]}, strict)
