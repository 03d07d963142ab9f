"""Answers as text and as JSON."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmctl.client.answers import answer_values, plain, render_answer
from mmctl.inference import InferResponse
from mmctl.tensors import Array, Signature, TensorSpec, parse_type


def outputs(*specs: str, max_batch: int = 4) -> Signature:
    named = [spec.split(": ") for spec in specs]
    return Signature((), tuple(TensorSpec(n, parse_type(t)) for n, t in named), max_batch)


def texts(*rows: str | bytes) -> Array:
    array = np.empty((len(rows), 1), dtype=object)
    array[:, 0] = rows
    return array


MODERATION = outputs("label: bytes", "probs: fp32[3]")


def test_one_row_is_one_block() -> None:
    answer = InferResponse(
        {"label": texts("block"), "probs": np.array([[0.1, 0.2, 1]], np.float32)}
    )
    assert render_answer(answer, MODERATION) == "label  block\nprobs  [0.1, 0.2, 1.0]"


def test_outputs_stand_in_the_models_order() -> None:
    answer = InferResponse({"probs": np.ones((1, 3)), "more": np.ones((1, 1)), "label": texts("a")})
    shown = [line.split()[0] for line in render_answer(answer, MODERATION).splitlines()]
    assert shown == ["label", "probs", "more"]


def test_several_rows_are_numbered_blocks() -> None:
    answer = InferResponse({"label": texts("a", "b")})
    assert render_answer(answer, MODERATION) == "row 1\nlabel  a\n\nrow 2\nlabel  b"


def test_long_arrays_are_told_by_shape_and_first_values() -> None:
    answer = InferResponse({"y": np.arange(1000, dtype=np.float32).reshape(1, 10, 100)})
    shown = render_answer(answer, outputs("y: fp32[10,100]"))
    assert shown == "y  fp32[10,100]: 0.0, 1.0, 2.0, 3.0, ..."


def test_a_model_without_batches_has_one_block() -> None:
    answer = InferResponse({"y": np.array([7], np.int32), "z": np.array([1, 2], np.int32)})
    shown = render_answer(answer, outputs("y: int32", "z: int32[2]", max_batch=0))
    assert shown == "y  7\nz  [1, 2]"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("你好, café", "你好, café", id="any script"),
        pytest.param("a\x1b[31m\nb", r'"a\u001b[31m\nb"', id="nothing reaches the terminal"),
        pytest.param(b"\xff\xd8", "<2 bytes>", id="bytes"),
    ],
)
def test_texts_on_a_terminal(value: str | bytes, shown: str) -> None:
    assert render_answer(InferResponse({"label": texts(value)}), MODERATION) == f"label  {shown}"


def test_values_of_json() -> None:
    answer = InferResponse(
        {"label": texts("block"), "probs": np.array([[0.1, 0.2, 1]], np.float32)}, "moderate", "3"
    )
    assert answer_values(answer, MODERATION, 12.34567) == {
        "outputs": {"label": ["block"], "probs": [[0.1, 0.2, 1.0]]},
        "model": "moderate",
        "version": 3,
        "provenance": None,
        "ms": 12.346,
    }


def test_provenance_is_taken_out_of_the_outputs_and_read() -> None:
    answer = InferResponse({"label": texts("a"), "provenance": texts('{"nsfw": "ran"}')})
    values = answer_values(answer, outputs("label: bytes", "provenance: bytes"), 1.0)
    assert values["outputs"] == {"label": ["a"]}
    assert values["provenance"] == [{"nsfw": "ran"}]


def test_an_output_that_only_bears_the_name_is_kept_as_it_is() -> None:
    answer = InferResponse({"provenance": texts("Paris")})
    assert answer_values(answer, outputs("provenance: bytes"), 1.0)["provenance"] == ["Paris"]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        pytest.param(np.array([0.93], np.float32), [0.93], id="no digits fp32 does not have"),
        pytest.param(np.array([math.nan, -math.inf]), ["NaN", "-Infinity"], id="not finite"),
        pytest.param(np.array([[1, 2]], np.uint8), [[1, 2]], id="whole numbers"),
        pytest.param(np.array([True]), [True], id="booleans"),
        pytest.param(texts(b"\xff"), [[{"b64": "/w=="}]], id="bytes"),
        pytest.param(np.array(5, np.int64), 5, id="a scalar"),
        pytest.param(np.empty((0, 2)), [], id="nothing"),
    ],
)
def test_plain(array: Array, values: object) -> None:
    assert plain(array) == values
