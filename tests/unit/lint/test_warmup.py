"""Requests that Triton makes up while it loads a model: W001, W002. What 24.10 did with each."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import ensemble, found, found_in, lines, model

from mmctl.lint.configs.warmup import WARMUP_CHECKS

AT = "error m/config.pbtxt:5"
PYTHON = {"m/1/model.py": ""}


def value(
    name: str = "x", kind: str = "FP32", dims: str = "4", data: str = "zero_data: true"
) -> str:
    inside = f"data_type: TYPE_{kind} dims: [ {dims} ] {data}"
    return f'inputs {{ key: "{name}" value {{ {inside} }} }}'


def warm(
    *values: str, size: str = "batch_size: 1", batch: int = 4, inputs: str = "x:FP32[4]"
) -> str:
    more = f'model_warmup {{ name: "w" {size} {" ".join(values)} }}'
    return model(inputs, "y:FP32[4]", batch=batch, more=more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            warm(value(), size=""),
            "warning m/config.pbtxt:5 W001 warm-up `w` has no `batch_size`, so Triton skips it",
            id="no batch size",
        ),
        pytest.param(
            warm(value(), size="batch_size: 9"),
            f"{AT} W001 warm-up `w` has `batch_size` 9, and `max_batch_size` is 4",
            id="more rows than the model takes",
        ),
        pytest.param(
            warm(value(), size="batch_size: 2", batch=0),
            f"{AT} W001 warm-up `w` has `batch_size` 2, and `max_batch_size` is 0",
            id="two rows without a batch axis",
        ),
        pytest.param(
            warm(value("input")),
            f"{AT} W001 warm-up `w`: the model has no input `input`",
            id="another name for the input",
        ),
        pytest.param(
            warm(value(), value("z")),
            "warning m/config.pbtxt:5 W001 warm-up `w`: the model has no input `z`",
            id="an input too many",
        ),
        pytest.param(
            warm(value(), inputs="x:FP32[4] q:FP32[4] z:FP32[4]?"),
            "error m/config.pbtxt:7 W001 warm-up `w` is missing the required input `q`",
            id="an input too few",
        ),
        pytest.param(
            warm(value(kind="FP64")),
            f"{AT} W001 warm-up `w`, input `x`: the type is TYPE_FP64, and the model takes "
            "TYPE_FP32",
            id="another type",
        ),
        pytest.param(
            warm(value(dims="1, 4")),
            f"{AT} W001 warm-up `w`, input `x`: the dims are [1,4], and the model takes [4]",
            id="dims with a batch axis",
        ),
        pytest.param(
            warm(value(dims="")),
            f"{AT} W001 warm-up `w`, input `x`: the dims are [], and the model takes [4]",
            id="no dims",
        ),
        pytest.param(
            warm(value(dims="-1"), inputs="x:FP32[-1]"),
            f"{AT} W001 warm-up `w`, input `x`: the dims are [-1], and every dimension needs a "
            "size: -1 and 0 are none",
            id="a dimension that varies",
        ),
        pytest.param(
            warm(value(data="")),
            f"{AT} W001 warm-up `w`, input `x`: no values are given",
            id="no values",
        ),
        pytest.param(
            warm(value(data='input_data_file: "a.bin"')),
            f"{AT} W002 the warm-up file `warmup/a.bin` does not exist",
            id="no file",
        ),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, text: str, expected: str) -> None:
    assert found_in(tmp_path, text, WARMUP_CHECKS) == [expected]


CONTROL = (
    'sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START '
    "int32_false_true: [ 0, 1 ] } } }"
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(warm(value()), id="zeros"),
        pytest.param(warm(value(data="random_data: true"), size="batch_size: 4"), id="random"),
        pytest.param(warm(value(dims="7, 4"), inputs="x:FP32[-1,4]"), id="a size for a free dim"),
        pytest.param(warm(value(), batch=0), id="no batch axis"),
        pytest.param(warm(value(), inputs="x:FP32[4] z:FP32[4]?"), id="an optional input left out"),
        pytest.param(warm(value(), value("START", "INT32", "1")) + CONTROL, id="a control input"),
        pytest.param(
            'backend: "python" model_warmup { batch_size: 1 ' + value("any") + " }",
            id="the model declares its inputs itself",
        ),
    ],
)
def test_what_is_right_stays_silent(tmp_path: Path, text: str) -> None:
    assert found_in(tmp_path, text, WARMUP_CHECKS) == []


def strings(*texts: bytes) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


@pytest.mark.parametrize(
    ("kind", "dims", "content", "expected"),
    [
        pytest.param("FP32", "4", b"0" * 16, [], id="16 bytes"),
        pytest.param(
            "FP32",
            "4",
            b"0" * 10,
            [
                "error W002 the warm-up file `warmup/a.bin` has 10 bytes, and TYPE_FP32[4] expects "
                "16"
            ],
            id="10 bytes",
        ),
        pytest.param(
            "FP32",
            "4",
            b"0" * 32,
            [
                "warning W002 of the 32 bytes of the warm-up file `warmup/a.bin` only the first 16 "
                "are read (TYPE_FP32[4])"
            ],
            id="two rows in a file",
        ),
        pytest.param("INT64", "2,2", b"0" * 32, [], id="four numbers of 8 bytes"),
        pytest.param("STRING", "2", strings(b"a", b"bcd"), [], id="two strings"),
        pytest.param("STRING", "1", strings("café".encode()), [], id="a length in bytes"),
        pytest.param(
            "STRING",
            "1",
            b"\x04\0\0\0" + "café".encode(),
            [
                "error W002 string 2 of the warm-up file `warmup/a.bin`: its length, 4 bytes, is "
                "cut off after 1"
            ],
            id="a length in characters",
        ),
        pytest.param(
            "STRING",
            "1",
            b"hello world",
            [
                "error W002 string 1 of the warm-up file `warmup/a.bin`: its length prefix says "
                "1819043176 bytes, and 7 follow"
            ],
            id="no length",
        ),
        pytest.param(
            "STRING",
            "2",
            strings(b"abc"),
            ["error W002 the number of strings in the warm-up file `warmup/a.bin` is 1, not 2"],
            id="a string too few",
        ),
        pytest.param(
            "STRING",
            "1",
            b"",
            ["error W002 the number of strings in the warm-up file `warmup/a.bin` is 0, not 1"],
            id="nothing",
        ),
    ],
)
def test_what_is_in_the_file(
    tmp_path: Path, kind: str, dims: str, content: bytes, expected: list[str]
) -> None:
    text = warm(
        value(kind=kind, dims=dims, data='input_data_file: "a.bin"'), inputs=f"x:{kind}[{dims}]"
    )
    files = {**PYTHON, "m/warmup/a.bin": content}
    found = found_in(tmp_path, text, WARMUP_CHECKS, files)
    assert [line.replace(" m/config.pbtxt:5", "") for line in found] == expected


def test_a_file_holds_one_row_whatever_the_batch_size(tmp_path: Path) -> None:
    text = warm(value(data='input_data_file: "a.bin"'), size="batch_size: 4")
    assert found_in(tmp_path, text, WARMUP_CHECKS, {**PYTHON, "m/warmup/a.bin": b"0" * 16}) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    text = warm(value(data='input_data_file: "a"'))
    found = found_in(tmp_path, text, WARMUP_CHECKS, {**PYTHON, "m/warmup/a/": ""})
    assert found == [f"{AT} W002 the warm-up file `warmup/a` is no file"]


def test_a_skipped_sample_is_not_looked_at(tmp_path: Path) -> None:
    text = warm(value("z", dims="-1", data='input_data_file: "none"'), size="")
    assert len(found_in(tmp_path, text, WARMUP_CHECKS)) == 1


def test_a_warm_up_of_an_ensemble_is_another_rules_business(tmp_path: Path) -> None:
    more = f'model_warmup {{ name: "w" {value("z")} }}\n'
    files = {"flow/config.pbtxt": ensemble("x:FP32[4]", "y:FP32[4]", more=more)}
    assert lines(found(tmp_path, files, WARMUP_CHECKS)) == []
