"""What callers may rely on, and what only a server can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import ensemble, model, repository

from mmctl.lint.signatures import Io, IoTensor, io_of

ADDS = "def auto_complete_config(config):\n    config.add_input({})\n    return config\n"


def io(folder: Path, config: str, code: str = "") -> Io:
    files = {"m/config.pbtxt": config, "m/1/model.py": code}
    return io_of(repository(folder, files).models["m"])


def test_a_declared_tensor_has_its_type_dims_reshape_and_whether_it_may_be_left_out(
    tmp_path: Path,
) -> None:
    known = io(tmp_path, model("a:FP32[-1,4]=[4]? b:STRING[1]", "c:INT64[2]", batch=8))
    assert known.inputs == {
        "a": IoTensor("a", "TYPE_FP32", (-1, 4), (4,), optional=True),
        "b": IoTensor("b", "TYPE_STRING", (1,)),
    }
    assert known.outputs == {"c": IoTensor("c", "TYPE_INT64", (2,))}
    assert (known.max_batch, known.decoupled, known.grows) == (8, False, False)


@pytest.mark.parametrize(
    ("config", "inputs", "outputs", "max_batch"),
    [
        pytest.param('backend: "python"', None, None, None, id="nothing is declared"),
        pytest.param(
            'backend: "python" max_batch_size: 4', None, None, 4, id="a batch that is declared"
        ),
        pytest.param(model("x:FP32[1]", ""), {"x"}, None, None, id="one side is declared"),
        pytest.param(model("x:FP32[1]", "y:FP32[1]"), {"x"}, {"y"}, 0, id="both sides are"),
        pytest.param(ensemble("x:FP32[1]", ""), {"x"}, set(), 0, id="an ensemble is as it is"),
    ],
)
def test_what_is_not_declared_is_unknown_but_for_ensembles(
    tmp_path: Path,
    config: str,
    inputs: set[str] | None,
    outputs: set[str] | None,
    max_batch: int | None,
) -> None:
    known = io(tmp_path, config)
    assert (known.inputs if known.inputs is None else set(known.inputs)) == inputs
    assert (known.outputs if known.outputs is None else set(known.outputs)) == outputs
    assert known.max_batch == max_batch


def test_code_that_completes_its_config_may_add_to_what_is_declared(tmp_path: Path) -> None:
    known = io(tmp_path, model("x:FP32[1]", "y:FP32[1]"), ADDS)
    assert known.grows
    assert known.max_batch is None
    assert set(known.inputs or ()) == {"x"}


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        pytest.param('{ name: "x" }', IoTensor("x", "", None), id="nothing said"),
        pytest.param(
            '{ name: "x" data_type: TYPE_FP32 dims: [ 0 ] }',
            IoTensor("x", "TYPE_FP32", None),
            id="a size that there cannot be",
        ),
        pytest.param(
            '{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] reshape { } }',
            IoTensor("x", "TYPE_FP32", (1,), ()),
            id="a scalar for the model",
        ),
    ],
)
def test_a_tensor_is_known_as_far_as_the_config_says(
    tmp_path: Path, tensor: str, expected: IoTensor
) -> None:
    config = f'backend: "python" input {tensor} output {tensor}'
    assert (io(tmp_path, config).inputs or {})["x"] == expected


def test_a_model_is_asked_once(tmp_path: Path) -> None:
    known = repository(tmp_path, {"m/config.pbtxt": model("x:FP32[1]", "y:FP32[1]")}).models["m"]
    assert io_of(known) is io_of(known)
