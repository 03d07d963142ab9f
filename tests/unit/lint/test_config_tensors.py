"""Inputs and outputs in a config.pbtxt, each by itself: C010 to C014, C017, C018."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import found_in

from mmctl.lint.configs.tensors import TENSOR_CHECKS

AT = "error m/config.pbtxt:2"
OK = "data_type: TYPE_FP32 dims: [ 4 ]"
OUTPUT = f'output {{ name: "y" {OK} }}'
COMPLETES = {"m/1/model.py": "def auto_complete_config(config): ..."}


def config(*lines: str, batch: int = 4, backend: str = "python") -> str:
    return "\n".join([f'backend: "{backend}" max_batch_size: {batch}', *lines])


def x(text: str) -> str:
    return f'input {{ name: "x" {text} }}'


def reshaped(dims: str, shape: str) -> str:
    return x(f"data_type: TYPE_FP32 dims: [ {dims} ] reshape {{ shape: [ {shape} ] }}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            config(x("data_type: TYPE_FP32 dims: [ 1, 3, 8, 8 ] format: FORMAT_NCHW"), batch=0),
            [f"{AT} C010 `FORMAT_NCHW` needs 3 dims, and input `x` has 4"],
            id="four dims for an image",
        ),
        pytest.param(
            config(x("data_type: TYPE_FP32 dims: [ 0 ]")),
            [f"{AT} C011 a dimension of input `x` is 0: it must be an integer of 1 or more, or -1"],
            id="a dimension 0",
        ),
        pytest.param(
            config(OUTPUT, x("data_type: TYPE_FP32 dims: [ 4, -2 ]")),
            [
                "error m/config.pbtxt:3 C011 a dimension of input `x` is -2: it must be an integer "
                "of 1 or more, or -1"
            ],
            id="a dimension -2",
        ),
        pytest.param(
            config(x("data_type: TYPE_FP32")), [f"{AT} C011 input `x` has no `dims`"], id="no dims"
        ),
        pytest.param(
            config(x("data_type: TYPE_FP32"), backend="onnxruntime"),
            [f"{AT} C011 input `x` has no `dims`"],
            id="no dims: ONNX fills in whole sections only",
        ),
        pytest.param(
            config(x("data_type: TYPE_FP32"), backend="tensorrt"),
            [
                "info m/config.pbtxt:2 C011 input `x` has no `dims`, and the model fills it in "
                "while it loads"
            ],
            id="no dims: TensorRT fills them in",
        ),
        pytest.param(
            config(reshaped("3, 8, 8", "2, 3, 8, 8")),
            [
                f"{AT} C012 the reshape [2,3,8,8] of input `x` has another size than dims "
                "[3,8,8]: 384 and 192 elements"
            ],
            id="a reshape with a batch in it",
        ),
        pytest.param(
            config(reshaped("4", "")),
            [
                f"{AT} C012 the reshape [] of input `x` has another size than dims [4]: 1 "
                "and 4 elements"
            ],
            id="an empty reshape for more than one value",
        ),
        pytest.param(
            config(reshaped("1", ""), OUTPUT, batch=0),
            [
                f"{AT} C012 input `x` has an empty reshape, and a model that is non-batching "
                "(`max_batch_size: 0`) takes no scalar tensors"
            ],
            id="an empty reshape without a batch axis",
        ),
        pytest.param(
            config(reshaped("4", "-1")),
            [
                f"{AT} C012 the reshape [-1] of input `x` has another size than dims [4]: only "
                "the reshape can vary"
            ],
            id="a reshape that can vary",
        ),
        pytest.param(
            config(reshaped("-1, 2", "-1, -1")),
            [
                f"{AT} C012 the reshape [-1,-1] of input `x` has another number of variable-size "
                "dimensions (-1) than dims [-1,2]: 2, not 1"
            ],
            id="more dims that vary",
        ),
        pytest.param(
            config(reshaped("2, 4, -1, 6", "8, -1, 7")),
            [
                f"{AT} C012 the reshape [8,-1,7] of input `x` has another size than dims "
                "[2,4,-1,6] beside the -1"
            ],
            id="another size beside the dim that varies",
        ),
        pytest.param(
            config(reshaped("4", "0")),
            [
                f"{AT} C012 the reshape [0] of input `x` has a dimension that is neither an "
                "integer of 1 or more nor -1"
            ],
            id="a reshape of nothing",
        ),
        pytest.param(
            config(OUTPUT, OUTPUT),
            ["error m/config.pbtxt:3 C013 there are two outputs called `y`, the first in line 2"],
            id="one name twice",
        ),
        pytest.param(
            config("input { data_type: TYPE_FP32 dims: [ 4 ] }"),
            [f"{AT} C013 input 0 has no `name`"],
            id="no name",
        ),
        pytest.param(
            config(x("dims: [ 4 ]")), [f"{AT} C014 input `x` has no `data_type`"], id="no type"
        ),
        pytest.param(
            config(x(f"{OK} is_shape_tensor: true")),
            [f"{AT} C017 `is_shape_tensor` of input `x` is for TensorRT engines only"],
            id="a shape tensor of no engine",
        ),
        pytest.param(
            config(x(f"{OK} is_non_linear_format_io: true"), backend="tensorrt"),
            [f"{AT} C017 a non-linear format needs 3 dims, and input `x` has 1"],
            id="a non-linear format of one dim",
        ),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert found_in(tmp_path, text, TENSOR_CHECKS) == expected


def batch_input(text: str) -> str:
    return config(f"batch_input {{ {text} }}", x(OK), OUTPUT)


def batch_output(text: str) -> str:
    return config(f"batch_output {{ kind: BATCH_SCATTER_WITH_INPUT_SHAPE {text} }}", x(OK), OUTPUT)


COUNT = 'kind: BATCH_ELEMENT_COUNT target_name: "n"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            batch_input(f"{COUNT} data_type: TYPE_FP32"),
            ["`BATCH_ELEMENT_COUNT` expects 1 source input, got 0"],
            id="no source",
        ),
        pytest.param(
            batch_input(f'{COUNT} data_type: TYPE_FP32 source_input: [ "x", "x" ]'),
            ["`BATCH_ELEMENT_COUNT` expects 1 source input, got 2"],
            id="two sources",
        ),
        pytest.param(
            batch_input(f'{COUNT} data_type: TYPE_FP32 source_input: "z"'),
            ["unknown source input `z`"],
            id="an unknown source",
        ),
        pytest.param(
            batch_input(f'{COUNT} data_type: TYPE_INT64 source_input: "x"'),
            ["the data type of a batch input must be TYPE_INT32 or TYPE_FP32"],
            id="a type that batch inputs do not have",
        ),
        pytest.param(
            batch_input(f'{COUNT} source_input: "x"'),
            ["the data type of a batch input must be TYPE_INT32 or TYPE_FP32"],
            id="no type",
        ),
        pytest.param(
            batch_output('target_name: "y"'),
            ["`BATCH_SCATTER_WITH_INPUT_SHAPE` expects 1 source input, got 0"],
            id="no source of an output",
        ),
        pytest.param(
            batch_output('target_name: "z" source_input: "x"'),
            ["unknown target output `z`"],
            id="an unknown target",
        ),
        pytest.param(
            batch_output('target_name: [ "y", "y" ] source_input: "x"'),
            ["the target output `y` stands here twice"],
            id="a target twice",
        ),
        pytest.param(
            batch_input(f'{COUNT} data_type: TYPE_INT32 source_input: "x"'), [], id="a batch input"
        ),
        pytest.param(batch_output('target_name: "y" source_input: "x"'), [], id="a batch output"),
    ],
)
def test_tensors_of_a_batch(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert found_in(tmp_path, text, TENSOR_CHECKS) == [f"{AT} C018 {line}" for line in expected]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(config(), id="nothing declared"),
        pytest.param(config(x("data_type: TYPE_FP32 dims: [ -1, 3 ]"), OUTPUT), id="a free dim"),
        pytest.param(
            config(x("data_type: TYPE_FP32 dims: [ 8, 8, 3 ] format: FORMAT_NHWC")), id="an image"
        ),
        pytest.param(config(reshaped("1", "")), id="a scalar for each row"),
        pytest.param(config(reshaped("3, 8, 8", "1, 3, 8, 8")), id="a 1 more"),
        pytest.param(
            config(reshaped("2, 4, -1, 6", "8, -1, 1, 6")), id="equal beside the free dim"
        ),
        pytest.param(config(reshaped("1, -1, 1", "-1")), id="only a free dim"),
        pytest.param(
            config(x(OK), f'output {{ name: "x" {OK} }}'), id="an input and an output of one name"
        ),
        pytest.param(
            config(x(f"{OK} is_shape_tensor: true"), backend="tensorrt"), id="a shape tensor"
        ),
    ],
)
def test_what_is_right_stays_silent(tmp_path: Path, text: str) -> None:
    assert found_in(tmp_path, text, TENSOR_CHECKS) == []


def test_what_the_model_fills_in_is_a_remark(tmp_path: Path) -> None:
    text = config('output { name: "y" dims: [ 4 ] }', 'output { name: "z" data_type: TYPE_FP32 }')
    filled = ", and the model fills it in while it loads"
    assert found_in(tmp_path, text, TENSOR_CHECKS, COMPLETES) == [
        f"info m/config.pbtxt:2 C014 output `y` has no `data_type`{filled}",
        f"info m/config.pbtxt:3 C011 output `z` has no `dims`{filled}",
    ]


def test_an_empty_reshape_is_left_alone_where_the_model_may_set_a_batch(tmp_path: Path) -> None:
    text = config(reshaped("1", ""), OUTPUT, batch=0)
    assert found_in(tmp_path, text, TENSOR_CHECKS, COMPLETES) == []
