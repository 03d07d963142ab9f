"""Configs as Triton completes them, without a server: right, or left open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lint_repositories import model, repository
from onnx_completion_models import MODELS, VARIANTS, Recorded, read_recorded
from onnx_samples import identity

from mmctl.lint.checker import check_repository
from mmctl.lint.completion import completed, max_batch_known, sides_known
from mmctl.lint.onnx.batches import ONNX_BATCH_CHECKS
from mmctl.lint.onnx.tensors import ONNX_TENSOR_CHECKS
from mmctl.lint.repository import Model
from mmctl.triton.pbtxt import json_of_message

CHECKS = (*ONNX_TENSOR_CHECKS, *ONNX_BATCH_CHECKS)

pytest.importorskip("onnx")

ONLY_A_SERVER_KNOWS = {"nonzero", "norank", "norank1"}
"""Models with an output whose shape rests on values: ONNX Runtime might know more."""


def one(folder: Path, files: Mapping[str, str | bytes]) -> Model:
    return repository(folder, {f"m/{name}": content for name, content in files.items()}).models["m"]


# ---------------------------------------------------------------- what the C++ backend did


@pytest.fixture(scope="module")
def recorded(shared_dir: Path) -> Mapping[tuple[str, str], Recorded]:
    return read_recorded(shared_dir)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_known_is_what_the_c_backend_made(
    tmp_path: Path, recorded: Mapping[tuple[str, str], Recorded], name: str, variant: str
) -> None:
    case = recorded[name, variant]
    files = {f"{case.name}/1/model.onnx": MODELS[name]()}
    texts = {f"{case.name}/config.pbtxt": case.text} if case.text is not None else {}
    read = repository(tmp_path, {**files, **texts})
    errors = [f for f in check_repository(read, checks=CHECKS) if f.severity == "error"]
    made, known = read.models[case.name], ("input", "output", "max_batch_size")
    sides = dict(zip(known, (*sides_known(made), max_batch_known(made)), strict=True))
    if case.config is None:
        assert errors or name in ONLY_A_SERVER_KNOWS
        return
    assert not errors
    assert all(sides.values()) or name in ONLY_A_SERVER_KNOWS
    message = completed(made)
    want, got = sections(case.config), sections(json_of_message(message))
    for key, sure in sides.items():
        if sure:
            assert got[key] == want[key]
    if all(sides.values()):
        assert got == want


def sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """What completion can change, numbers as numbers; the order of the tensors counts."""
    return {
        "max_batch_size": int(config.get("max_batch_size", 0)),
        "batches": "dynamic_batching" in config,
        **{
            side: [
                (
                    entry["name"],
                    entry["data_type"],
                    [int(size) for size in entry["dims"]],
                    "reshape" in entry and entry["reshape"].get("shape", []),
                )
                for entry in config.get(side, [])
            ]
            for side in ("input", "output")
        },
    }


def test_nearly_all_is_known_without_a_server(
    tmp_path: Path, recorded: Mapping[tuple[str, str], Recorded]
) -> None:
    """Of the 312 configs 210 are completed and 88 refused like on a server; 14 are left open."""
    tally: Counter[str] = Counter()
    for (name, variant), case in recorded.items():
        files: dict[str, str | bytes] = {"m/1/model.onnx": MODELS[name]()}
        if case.text is not None:
            files["m/config.pbtxt"] = case.text
        read = repository(tmp_path / f"{name}__{variant}", files)
        made = read.models["m"]
        if case.config is None:
            found = [f for f in check_repository(read, checks=CHECKS) if f.severity == "error"]
            tally["refused" if found else "open"] += 1
        else:
            known = all(sides_known(made)) and max_batch_known(made)
            tally["completed" if known else "open"] += 1
    assert tally == {"completed": 210, "refused": 88, "open": 14}


# ---------------------------------------------------------------- what is known of a model

PARTS = {
    "input": 'input { name: "x" data_type: TYPE_FP32 dims: [4] }\n',
    "output": 'output { name: "y" data_type: TYPE_FP32 dims: [4] }\n',
}


@pytest.mark.parametrize(
    ("backend", "given", "known"),
    [
        ("python", ("input", "output"), (True, True)),
        ("python", ("input",), (True, False)),
        ("python", (), (False, False)),
        ("tensorrt", ("output",), (False, True)),
        ("onnxruntime", ("input",), (True, False)),
    ],
)
def test_without_a_file_known_is_what_is_written(
    tmp_path: Path, backend: str, given: tuple[str, ...], known: tuple[bool, bool]
) -> None:
    config = f'backend: "{backend}"\n' + "".join(PARTS[side] for side in given)
    made = one(tmp_path, {"config.pbtxt": config, "1/": ""})
    assert sides_known(made) == known
    assert completed(made) is made.message


@pytest.mark.parametrize("content", [b"", b"broken"])
def test_a_broken_file_tells_nothing(tmp_path: Path, content: bytes) -> None:
    made = one(tmp_path, {"1/model.onnx": content})
    assert (sides_known(made), max_batch_known(made)) == ((False, False), False)


def test_what_is_written_stays_and_the_rest_is_filled(tmp_path: Path) -> None:
    config = 'backend: "onnxruntime"\nmax_batch_size: 2\n' + PARTS["input"]
    made = one(tmp_path, {"config.pbtxt": config, "1/model.onnx": identity()})
    message = completed(made)
    assert (message.max_batch_size, message.HasField("dynamic_batching")) == (2, True)
    assert [list(entry.dims) for entry in (*message.input, *message.output)] == [[4], [4]]
    assert list(made.message.output) == []


def test_a_complete_config_is_taken_as_it_is(tmp_path: Path) -> None:
    config = model("x:FP32[-1,4]", "y:FP32[-1,4]", backend="onnxruntime")
    made = one(tmp_path, {"config.pbtxt": config, "1/model.onnx": identity()})
    assert completed(made) is made.message
    assert sides_known(made) == (True, True)


def test_the_latest_served_version_is_completed(tmp_path: Path) -> None:
    files = {"1/model.onnx": identity("INT64"), "2/model.onnx": identity("FLOAT", ["N", 9])}
    assert list(completed(one(tmp_path, files)).input[0].dims) == [9]


def test_inputs_are_unknown_where_the_batch_is(tmp_path: Path) -> None:
    """Whether the model batches rests on an output that only ONNX Runtime knows."""
    made = one(tmp_path, {"1/model.onnx": MODELS["nonzero"]()})
    assert (sides_known(made), max_batch_known(made)) == ((False, False), False)
    assert not completed(made).input


def test_inputs_are_known_where_a_batch_is_wanted(tmp_path: Path) -> None:
    files = {"config.pbtxt": "max_batch_size: 8", "1/model.onnx": MODELS["nonzero"]()}
    assert sides_known(one(tmp_path, files)) == (True, True)
