"""What crashes or answers wrongly on the C++ ONNX backend is known beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from mmctl.triton.onnx_backend import Tensor, check_model, read_config
from mmctl.triton.onnx_hazards import KEYS, hazards

X = Tensor("x", "TYPE_FP32", (-1, 4), axis="N")
FLAT = Tensor("x", "TYPE_FP32", (-1,), axis="K")
SCALAR = Tensor("s", "TYPE_FP32", ())
EMPTY = {"reshape": {"shape": []}}


def port(name: str, *dims: int, kind: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims), **more}


RAGGED = port("x", -1, allow_ragged_batch=True)


def texts(axis: str, *rest: int) -> Tensor:
    return Tensor("y", "TYPE_STRING", (-1, *rest), axis=axis)


def found(
    inputs: list[Tensor], outputs: list[Tensor], *, max_batch: int = 4, **fields: Any
) -> list[tuple[str, str]]:
    """(key, subject) of the hazards of a config that loads."""
    config = read_config({"max_batch_size": max_batch, **fields}, "m")
    check_model(config, inputs, [], outputs)
    listed = hazards(config, inputs, outputs)
    assert {hazard.key for hazard in listed} <= KEYS.keys()
    return [(hazard.key, hazard.subject) for hazard in listed]


@pytest.mark.parametrize(
    ("outputs", "given", "expected"),
    [
        pytest.param([SCALAR], [port("s", 1, **EMPTY)], "scalar-output-crash", id="empty reshape"),
        pytest.param([SCALAR], [port("s", 1)], "scalar-output", id="scalar"),
        pytest.param(
            [Tensor("s", "TYPE_STRING", ())],
            [port("s", 1, kind="STRING")],
            "string-output",
            id="one text for all rows",
        ),
        pytest.param(
            [texts("M", 1)], [port("y", 1, kind="STRING")], "string-output", id="other rows"
        ),
        pytest.param(
            [texts("N", 1)], [port("y", 1, kind="STRING")], None, id="a text for each row"
        ),
        pytest.param([texts("", 1)], [port("y", 1, kind="STRING")], None, id="unnamed rows"),
        pytest.param([texts("unk__0", 1)], [port("y", 1, kind="STRING")], None, id="made-up name"),
        pytest.param(
            [Tensor("y", "TYPE_FP32", (-1, 4), axis="M")], [port("y", 4)], None, id="numbers"
        ),
    ],
)
def test_outputs_of_a_batching_model(
    outputs: list[Tensor], given: list[dict[str, Any]], expected: str | None
) -> None:
    listed = found([X], outputs, input=[port("x", 4)], output=given)
    assert listed == ([(expected, outputs[0].name)] if expected else [])


def test_an_output_that_the_config_leaves_out_is_no_hazard() -> None:
    y = Tensor("y", "TYPE_FP32", (-1, 4))
    assert not found([X], [SCALAR, y], input=[port("x", 4)], output=[port("y", 4)])


def test_without_batching_a_scalar_is_one() -> None:
    config = {"input": [port("x", -1, 4)], "output": [port("s", 1)]}
    assert not found([X], [SCALAR], max_batch=0, **config)


def test_of_a_scalar_input_the_first_row_counts() -> None:
    y = Tensor("y", "TYPE_FP32", (-1, 4))
    ports = {"input": [port("x", 4), port("s", 1)], "output": [port("y", 4)]}
    assert found([X, SCALAR], [y], **ports) == [("scalar-input", "s")]


SCATTER = {"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "target_name": ["y"], "source_input": ["x"]}
COUNT = {"kind": "BATCH_ACCUMULATED_ELEMENT_COUNT", "target_name": ["n"], "source_input": ["x"]}
ROWS = Tensor("n", "TYPE_FP32", (-1,), axis="N")


@pytest.mark.parametrize(
    ("axis", "fields", "expected"),
    [
        pytest.param("K", {}, True, id="as long as the input"),
        pytest.param("", {}, True, id="the model cannot know the rows"),
        pytest.param("K", {"batch_output": [SCATTER]}, False, id="scattered"),
        pytest.param("K", {"batch_input": [COUNT]}, True, id="as long as the input, with counts"),
        pytest.param("N", {"batch_input": [COUNT]}, False, id="as long as the counts"),
    ],
)
def test_flat_outputs_of_ragged_models(axis: str, fields: dict[str, Any], expected: bool) -> None:
    y = Tensor("y", "TYPE_FP32", (-1,), axis=axis)
    inputs = [FLAT, ROWS] if "batch_input" in fields else [FLAT]
    listed = found(inputs, [y], input=[RAGGED], output=[port("y", 1, **EMPTY)], **fields)
    assert listed == ([("ragged-output", "y")] if expected else [])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("intra_op_thread_count", "99999999999", "thread-count"),
        ("inter_op_thread_count", " -2147483649x", "thread-count"),
        ("execution_mode", "2147483648", "thread-count"),
        ("intra_op_thread_count", "2147483647", None),
        ("intra_op_thread_count", "abc", None),
        ("memory.enable_memory_arena_shrinkage", "nonsense", "arena-list"),
        ("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:x", "arena-list"),
        ("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:1", None),
        ("memory.enable_memory_arena_shrinkage", "cpu", None),
        ("a_key_of_the_users_own", "99999999999", None),
    ],
)
def test_parameters(name: str, value: str, expected: str | None) -> None:
    config = read_config({"parameters": {name: {"string_value": value}}}, "m")
    listed = [(hazard.key, hazard.subject) for hazard in hazards(config, [], [])]
    assert listed == ([(expected, name)] if expected else [])
