"""What is read of an ONNX file, and what not: its weights, and files outside of its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_completion_models import MODELS
from onnx_graphs import X, changed, class_token, computed, external, of_domain, recurrent, reshaped
from onnx_samples import doubled, first_row, identity, onnx_model, overridable, rows_together

from mmctl.lint.onnx.file import NotRead, OnnxFile, Unreadable, read_onnx
from mmctl.lint.onnx.graph import FixedState
from mmctl.lint.onnx.wire import without_weights

onnx = pytest.importorskip("onnx")


def read(folder: Path, content: bytes) -> OnnxFile:
    path = folder / "model.onnx"
    path.write_bytes(content)
    return read_onnx(path)


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("content", "shape", "unsure"),
    [
        pytest.param(identity(), ("N", 4), set(), id="as stated"),
        pytest.param(identity("FLOAT", [None, -1]), (None, None), set(), id="open without names"),
        pytest.param(identity("FLOAT", [0, 4]), (0, 4), set(), id="no rows are no open axis"),
        pytest.param(identity("FLOAT", []), (), set(), id="a scalar"),
        pytest.param(reshaped(1, 4, stated=["N", 4]), (1, 4), set(), id="the graph fixes it"),
        pytest.param(reshaped(1, 4, stated=["N", 5]), (None, None), {0, 1}, id="they disagree"),
        pytest.param(reshaped(1, 2, 2, stated=["N", 4]), None, set(), id="on the rank too"),
        pytest.param(computed(["N", 2, 2]), ("N", 2, 2), set(), id="computed, and stated"),
        pytest.param(computed(["N", "a", "b"]), ("N", "a", "b"), {1, 2}, id="computed alone"),
        pytest.param(MODELS["nonzero"](), ("K", 2), {0}, id="as many as there are values"),
        pytest.param(MODELS["norank"](), None, set(), id="no rank"),
        pytest.param(MODELS["passthru"](), ("N", 4), set(), id="an output that is an input"),
        pytest.param(MODELS["dim0names"](), ("B", 4), set(), id="two open axes"),
    ],
)
def test_an_output_has_the_shape_that_is_sure(
    tmp_path: Path, content: bytes, shape: tuple[Any, ...] | None, unsure: set[int]
) -> None:
    port = read(tmp_path, content).outputs[0]
    assert (port.shape, set(port.unsure)) == (shape, unsure)
    assert port.settled == (shape is not None and not unsure)


def test_what_is_stated_of_inner_values_is_not_believed(tmp_path: Path) -> None:
    """Scripts that open the batch axis of a file change its ends and forget the middle."""

    def stale(model: Any) -> None:
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("m", 1, [1, 4]))

    nodes = [("Relu", ["x"], ["m"], {}), ("Relu", ["m"], ["y"], {})]
    content = changed(onnx_model(X, {"y": ("FLOAT", ["N", 4])}, nodes), stale)
    assert read(tmp_path, content).outputs[0].shape == ("N", 4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "c64"])
def test_settled_shapes_are_those_of_onnx_runtime(tmp_path: Path, name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    file = read(tmp_path, MODELS[name]())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    for ports, theirs in (
        (file.inputs, session.get_inputs()),
        (file.overridable, session.get_overridable_initializers()),
        (file.outputs, session.get_outputs()),
    ):
        assert [(port.name, port.kind) for port in ports] == [(t.name, t.type) for t in theirs]
        for port, their in zip(ports, theirs, strict=True):
            if port.settled and port.kind.startswith("tensor("):
                assert [open_or(size) for size in port.shape or ()] == [
                    open_or(size) for size in their.shape
                ]


def open_or(size: int | str | None) -> int:
    return size if isinstance(size, int) and size >= 0 else -1


# ---------------------------------------------------------------- inputs with defaults


def test_an_initializer_that_is_an_input_is_a_default(tmp_path: Path) -> None:
    file = read(tmp_path, overridable())
    assert [port.name for port in file.inputs] == ["x"]
    assert [port.name for port in file.overridable] == ["scale"]


def test_before_ir_version_4_it_was_a_constant(tmp_path: Path) -> None:
    def age(model: Any) -> None:
        model.ir_version = 3

    file = read(tmp_path, changed(overridable(), age))
    assert ([port.name for port in file.inputs], file.overridable) == (["x"], ())


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param(identity(), {2: {"y": 2}, 3: {"y": 3}}, id="one each"),
        pytest.param(rows_together(), {2: {"y": 2}, 3: {"y": 3}}, id="the mates do not show"),
        pytest.param(first_row(), {2: {"y": 1}, 3: {"y": 1}}, id="always one"),
        pytest.param(doubled(), {2: {"y": 4}, 3: {"y": 6}}, id="twice as many"),
        pytest.param(MODELS["nonzero"](), {2: {}, 3: {}}, id="who knows"),
        pytest.param(identity("FLOAT", [2, 4]), {}, id="no open axis"),
    ],
)
def test_rows_of_a_batch_are_counted_where_inference_can(
    tmp_path: Path, content: bytes, rows: Mapping[int, Mapping[str, int]]
) -> None:
    assert read(tmp_path, content).batch_rows == rows


def test_what_a_second_row_breaks_is_named(tmp_path: Path) -> None:
    assert read(tmp_path, class_token()).broken_by_batch.startswith("Concat: ")
    assert read(tmp_path, identity()).broken_by_batch == ""


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_a_constant_first_state_is_for_its_batch_alone(tmp_path: Path, operator: str) -> None:
    (state,) = read(tmp_path, recurrent(operator, 1)).fixed_states
    assert state == FixedState("last", operator, 1)


def test_a_batch_first_layout_has_its_batch_elsewhere(tmp_path: Path) -> None:
    (state,) = read(tmp_path, recurrent("GRU", 1, layout=1)).fixed_states
    assert state.batch == 1


# ---------------------------------------------------------------- weights


def heavy(path: Path, megabytes: int) -> None:
    """A model with a constant of that size, and a small one that its shape rests on."""
    content = onnx_model(
        X,
        {"y": ("FLOAT", ["N", 2, 2])},
        [("Add", ["x", "weight"], ["z"], {}), ("Reshape", ["z", "shape"], ["y"], {})],
        {
            "weight": np.zeros((megabytes * 2**16, 4), np.float32),
            "shape": np.array([-1, 2, 2], np.int64),
        },
    )
    path.write_bytes(content)


def test_weights_are_skipped_and_shapes_are_not(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    heavy(path, 8)
    with path.open("rb") as file:
        content = without_weights(file, path.stat().st_size)
    assert len(content) < 1000
    (output,) = read_onnx(path).outputs
    assert (output.shape or ())[1:] == (2, 2)


def test_small_models_come_out_as_they_are() -> None:
    from io import BytesIO

    for made in MODELS.values():
        content = made()
        assert without_weights(BytesIO(content), len(content)) == content


@pytest.mark.parametrize("what", ["float_data", "int64_data"])
def test_weights_as_numbers_are_skipped_too(tmp_path: Path, what: str) -> None:
    def unpack(model: Any) -> None:
        (tensor,) = model.graph.initializer
        tensor.ClearField("raw_data")
        tensor.data_type = {"float_data": 1, "int64_data": 7}[what]
        getattr(tensor, what).extend([1] * 8000)

    content = changed(
        onnx_model(
            X,
            {"y": ("FLOAT", ["N", 4])},
            [("Relu", ["x"], ["y"], {})],
            {"w": np.zeros((2000, 4), np.float32)},
        ),
        unpack,
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert len(without_weights(file, len(content))) < 1000


# ---------------------------------------------------------------- files that are none


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"not a model", "is no ONNX file", id="text"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "is a pointer of Git LFS",
            id="Git LFS",
        ),
        pytest.param(b"\x08\x08", "has no graph", id="a header alone"),
    ],
)
def test_what_is_no_model_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read(tmp_path, content)


def test_a_file_may_end_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    heavy(path, 1)
    whole = path.read_bytes()
    for length in (*range(1, 400, 7), len(whole) // 2, len(whole) - 1):
        with pytest.raises(Unreadable):
            read(tmp_path, whole[:length])


def test_a_file_beyond_two_gigabytes_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 2**31 + 1)
    with pytest.raises(Unreadable, match=r"has 2\.0 GiB, and ONNX Runtime reads 2 GiB at most"):
        read_onnx(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(Unreadable, match="no regular file"):
        read_onnx(tmp_path / "model.onnx")


def test_without_the_package_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(NotRead, match="`onnx` is not installed"):
        read(tmp_path, b"")


# ---------------------------------------------------------------- data in other files


def test_external_data_is_measured_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(100))
    (data,) = read(tmp_path, external(location="w.bin", offset="4", length="64")).external
    assert (data.tensor, data.location, data.offset, data.length) == ("w", "w.bin", 4, 64)
    assert (data.size, data.outside, data.found) == (64, False, 100)


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "/etc/passwd", "inside/../../w.bin", "link.bin"],
)
def test_nobody_looks_outside_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "1"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (data,) = read(folder, external(location=location)).external
    assert (data.outside, data.found) == (True, None)


@pytest.mark.parametrize("location", ["gone.bin", "loop.bin", "a\0b", "x" * 5000, "."])
def test_a_name_that_is_no_file_is_not_found(tmp_path: Path, location: str) -> None:
    (tmp_path / "loop.bin").symlink_to("loop.bin")
    (data,) = read(tmp_path, external(location=location)).external
    assert data.found is None


# ---------------------------------------------------------------- operators


@pytest.mark.parametrize(
    ("make", "foreign"),
    [
        pytest.param(identity, (), id="standard"),
        pytest.param(partial(of_domain, "com.microsoft"), (), id="of ONNX Runtime"),
        pytest.param(partial(of_domain, "my.ops"), (("my.ops", "Identity"),), id="foreign"),
        pytest.param(partial(of_domain, "my.ops", defined=True), (), id="defined in the file"),
    ],
)
def test_operators_of_others_are_listed(
    tmp_path: Path, make: Callable[[], bytes], foreign: tuple[tuple[str, str], ...]
) -> None:
    assert read(tmp_path, make()).foreign == foreign
