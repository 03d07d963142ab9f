"""The builders: a program that behaves as trtexec does, and a TensorRT that needs no GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_files import V10, V11, fake_trtexec, spec
from onnx_samples import onnx_model

from mmctl.errors import InputError, WorldError
from mmctl.exporters.precision import STAGES
from mmctl.exporters.precision.base import Batch, Conversion, Quantize
from mmctl.exporters.tensorrt.builders import (
    BUILDERS,
    Container,
    InProcess,
    Trtexec,
    find_builder,
    own_user,
)
from mmctl.exporters.tensorrt.parsing import CAUSES, refusal
from mmctl.exporters.tensorrt.spec import PLAN
from mmctl.triton.plan_header import read_plan_version
from mmctl.triton.profiles import Profile

IMAGE = Profile("image", (1, 1, 8, 8), (4, 1, 8, 8), (16, 1, 8, 8))
CHANNELS = 16


@pytest.mark.parametrize(("release", "version"), [("25.10", V10), ("26.07", V11)])
def test_trtexec_gets_arguments_that_it_knows(tmp_path: Path, release: str, version: Any) -> None:
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    Trtexec(fake_trtexec(tmp_path / "trtexec", version)).build(spec(release), tmp_path)
    assert read_plan_version(tmp_path / PLAN) == version


def test_what_trtexec_refuses_is_told_in_our_words(tmp_path: Path) -> None:
    builder = Trtexec(fake_trtexec(tmp_path / "trtexec"))
    with pytest.raises(InputError, match=r"does not take broken\.onnx: it was quantized dynamic"):
        builder.build(spec(onnx="broken.onnx"), tmp_path)


def test_an_engine_of_an_earlier_build_is_never_taken_for_this_ones(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_bytes(b"old")
    with pytest.raises(WorldError, match="ended with exit code 1 and made no engine"):
        Trtexec(fake_trtexec(tmp_path / "trtexec")).build(spec(), tmp_path)  # no ONNX file
    assert not (tmp_path / PLAN).exists()


def test_a_container_runs_the_image_of_the_release_as_its_user(tmp_path: Path) -> None:
    engine = tmp_path / "docker"
    engine.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\ntouch {tmp_path}/{PLAN}\n')
    engine.chmod(0o755)
    Container(str(engine)).build(spec("25.10"), tmp_path)
    said = (tmp_path / "said").read_text().split()
    assert said[:3] == ["run", "--rm", "--gpus=all"]
    assert f"--user={own_user()}" in said
    assert "nvcr.io/nvidia/tritonserver:25.10-py3" in said


@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "inprocess"])
def test_a_builder_that_is_not_here_is_named(
    name: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorldError, match=f"nothing to build engines with: {name}"):
        find_builder(name)


def test_a_container_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program in ("docker", "trtexec"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_builder("auto") == Container(str(tmp_path / "docker"))
    assert find_builder("trtexec") == Trtexec(str(tmp_path / "trtexec"))


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.meaning[:20])
def test_every_cause_says_what_to_do(cause: Any) -> None:
    line = cause.pattern.split("|")[0].replace(".*", " ").replace("[Nn]", "N")
    assert refusal("m.onnx", [line]).hint == cause.hint


def test_an_unknown_refusal_is_passed_on() -> None:
    assert refusal("m.onnx", ["first", "last"]).message == "TensorRT does not take m.onnx: last"


class NoDriver:
    """TensorRT's bindings on a machine without a driver: the builder is a null pointer."""

    class ILogger:
        class Severity:
            ERROR = 1

    @staticmethod
    def Builder(_logger: Any) -> Any:
        raise TypeError("pybind11::init(): factory function returned nullptr")


def test_tensorrt_without_a_driver_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="TensorRT finds no GPU driver"):
        InProcess(NoDriver).build(spec(), tmp_path)


# ---------------------------------------------------------------- TensorRT for RTX, on a CPU


@functools.cache
def _network() -> bytes:
    """Two convolutions and a product: `image` [batch, 1, 8, 8] to `logits` [batch, 10]."""
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (draw.standard_normal(shape) / 4).astype(np.float32)

    pads = {"pads": [1, 1, 1, 1]}
    return onnx_model(
        {"image": ("FLOAT", ["batch", 1, 8, 8])},
        {"logits": ("FLOAT", ["batch", 10])},
        [
            ("Conv", ["image", "w1", "b1"], ["c1"], pads),
            ("Relu", ["c1"], ["r1"], {}),
            ("Conv", ["r1", "w2", "b2"], ["c2"], pads),
            ("Relu", ["c2"], ["r2"], {}),
            ("GlobalAveragePool", ["r2"], ["g"], {}),
            ("Flatten", ["g"], ["f"], {}),
            ("Gemm", ["f", "w3", "b3"], ["logits"], {}),
        ],
        {
            "w1": weights(CHANNELS, 1, 3, 3),
            "b1": weights(CHANNELS),
            "w2": weights(CHANNELS, CHANNELS, 3, 3),
            "b2": weights(CHANNELS),
            "w3": weights(CHANNELS, 10),
            "b3": weights(10),
        },
    )


@pytest.fixture(scope="module")
def rtx() -> Any:
    return pytest.importorskip("tensorrt_rtx", reason="the `trt-check` extra is not installed")


def _images() -> list[Batch]:
    draw = np.random.default_rng(1)
    return [{"image": draw.standard_normal((4, 1, 8, 8)).astype(np.float32)} for _ in range(4)]


def _converted(
    stage: str, folder: Path, network: bytes = b"", batches: Sequence[Batch] = ()
) -> None:
    """`folder/model.onnx`: the network, that of images unless given, converted by this stage."""
    pytest.importorskip("modelopt" if stage == "fp16" else "onnxruntime")
    source = folder / "fp32.onnx"
    source.write_bytes(network or _network())
    target = folder / "model.onnx"
    if stage == "fp32":
        source.replace(target)
        return
    work = folder / "work"
    work.mkdir()
    STAGES[stage].convert(Conversion(source, target, work, batches or _images(), Quantize()))


@pytest.mark.parametrize("stage", ["fp32", "fp16", "int8-tensorrt"])
def test_files_for_tensorrt_become_engines(rtx: Any, tmp_path: Path, stage: str) -> None:
    _converted(stage, tmp_path)
    InProcess(rtx).build(spec(profiles=(IMAGE,)), tmp_path)
    assert (tmp_path / PLAN).read_bytes()[:4] == b"vtrt"
    with pytest.raises(InputError, match="which Triton does not load"):
        read_plan_version(tmp_path / PLAN)


@pytest.mark.parametrize(
    ("stage", "said"),
    [("int8-static", "biases are quantized|not symmetric"), ("int8-dynamic", "dynamically")],
)
def test_files_for_onnx_runtime_are_refused_with_the_way_out(
    rtx: Any, tmp_path: Path, stage: str, said: str
) -> None:
    _converted(stage, tmp_path)
    with pytest.raises(InputError, match=said) as caught:
        InProcess(rtx).build(spec(profiles=(IMAGE,)), tmp_path)
    assert "quantize: {tensorrt: true}" in (caught.value.hint or "")
    assert not (tmp_path / PLAN).exists()


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        pytest.param((), "no profile says their sizes", id="none"),
        pytest.param((replace(IMAGE, min=(9, 1, 8, 8)),), "does not take model", id="order"),
    ],
)
def test_a_profile_that_covers_nothing_is_refused(
    rtx: Any, tmp_path: Path, profiles: tuple[Profile, ...], said: str
) -> None:
    _converted("fp32", tmp_path)
    with pytest.raises(InputError, match=said):
        InProcess(rtx).build(spec(profiles=profiles), tmp_path)


WORDS, WIDTH = 50, 32
TOKENS = Profile("ids", (1, 1), (4, 16), (8, 64))


def _text_network() -> bytes:
    """Embedding, one attention and a mean: `ids` int64 [batch, seq] to `vector` [batch, 32]."""
    draw = np.random.default_rng(0)
    shapes = {"table": (WORDS, WIDTH), **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH))}
    constants = {
        name: draw.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()
    }
    return onnx_model(
        {"ids": ("INT64", ["batch", "seq"])},
        {"vector": ("FLOAT", ["batch", WIDTH])},
        [
            ("Gather", ["table", "ids"], ["x"], {}),
            *(("MatMul", ["x", f"w{part}"], [part], {}) for part in "qkv"),
            ("Transpose", ["k"], ["kt"], {"perm": [0, 2, 1]}),
            ("MatMul", ["q", "kt"], ["scores"], {}),
            ("Softmax", ["scores"], ["shares"], {"axis": -1}),
            ("MatMul", ["shares", "v"], ["mixed"], {}),
            ("ReduceMean", ["mixed"], ["vector"], {"axes": [1], "keepdims": 0}),
        ],
        constants,
    )


@pytest.mark.parametrize("stage", ["fp32", "fp16", "int8-tensorrt"])
def test_texts_of_any_length_become_an_engine(rtx: Any, tmp_path: Path, stage: str) -> None:
    draw = np.random.default_rng(1)
    batches = [{"ids": draw.integers(0, WORDS, (4, 16))} for _ in range(4)]
    _converted(stage, tmp_path, _text_network(), batches)
    InProcess(rtx).build(spec(profiles=(TOKENS,)), tmp_path)
    assert (tmp_path / PLAN).read_bytes()[:4] == b"vtrt"
