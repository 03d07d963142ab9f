"""What is planned for an engine, without TensorRT and without a GPU: texts that can be reviewed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from engine_files import IMAGE_PROFILE, TEXT_PROFILES, V10, V11, plan_bytes, spec

from mmctl.errors import InputError
from mmctl.exporters.tensorrt.arguments import trtexec_argv
from mmctl.exporters.tensorrt.container import container_argv
from mmctl.exporters.tensorrt.spec import BuildSpec, render_spec
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.generate import ONNX, TENSORRT, configs_for
from mmctl.triton.options import AcceleratorEntry, Batching, OptimizationEntry, ServingOptions
from mmctl.triton.pbtxt import render_config
from mmctl.triton.plan_header import read_plan_version
from mmctl.triton.releases import Version

GOLDEN = Path(__file__).parent / "tensorrt_golden"

IMAGES = Signature(
    inputs=(TensorSpec("pixels", parse_type("fp32[3,224,224]")),),
    outputs=(TensorSpec("scores", parse_type("fp32[1000]")),),
    max_batch=32,
)
BATCHING = Batching(max_batch=32, preferred=(4, 8))


def _argv(made: BuildSpec) -> str:
    return "\n".join(trtexec_argv(made, "trtexec", "/engines/resnet")) + "\n"


def _container() -> str:
    made = spec("25.10", TEXT_PROFILES, "model.trt.onnx")
    return "\n".join(container_argv(made, "/engines/resnet", user="1000:1000")) + "\n"


def _engine_config() -> str:
    made = configs_for("resnet", IMAGES, ONNX, ServingOptions(batching=BATCHING), gpu=TENSORRT)
    return render_config(made["configs/gpu.pbtxt"])


def _provider_config() -> str:
    asked = OptimizationEntry(gpu=(AcceleratorEntry(name="tensorrt"),))
    made = configs_for(
        "resnet",
        IMAGES,
        ONNX,
        ServingOptions(batching=BATCHING, optimization=asked),
        gpu=replace(ONNX, filename="model.fp16.onnx"),
    )
    return render_config(made["configs/gpu.pbtxt"])


TEXTS: dict[str, Callable[[], str]] = {
    "build.json": lambda: render_spec(spec()),
    "build_guessed.json": lambda: render_spec(spec("26.06", TEXT_PROFILES, "model.fp16.onnx")),
    "trtexec_10.txt": lambda: _argv(spec("25.10")),
    "trtexec_11.txt": lambda: _argv(spec("26.07")),
    "trtexec_fixed_shapes.txt": lambda: _argv(spec("26.07", ())),
    "container.txt": _container,
    "engine_gpu.pbtxt": _engine_config,
    "provider_gpu.pbtxt": _provider_config,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_the_reviewed_one(name: str, request: pytest.FixtureRequest) -> None:
    text = TEXTS[name]()
    if request.config.getoption("--update-golden"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def test_no_reviewed_text_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(TEXTS)


@pytest.mark.parametrize("release", ["24.10", "25.10", "26.06", "26.07", "27.01"])
def test_precision_is_never_an_argument(release: str) -> None:
    words = set(trtexec_argv(spec(release), "trtexec", "/e"))
    assert not words & {"--fp16", "--int8", "--best", "--bf16", "--fp8"}


@pytest.mark.parametrize(
    ("release", "typed"),
    [("25.10", True), ("26.06", True), ("27.01", True), ("26.07", False)],
)
def test_types_are_demanded_of_every_tensorrt_that_may_be_older_than_11(
    release: str, typed: bool
) -> None:
    assert ("--stronglyTyped" in trtexec_argv(spec(release), "trtexec", "/e")) is typed


def test_what_the_owner_says_of_a_target_counts_more_than_the_table() -> None:
    made = spec("26.07")
    older = replace(made, target=replace(made.target, tensorrt=(10, 16)))
    assert "--stronglyTyped" in trtexec_argv(older, "trtexec", "/e")


def test_equal_builds_are_equal_bytes() -> None:
    assert render_spec(spec(profiles=(IMAGE_PROFILE,))) == render_spec(spec())


@pytest.mark.parametrize("version", [V10, V11])
def test_the_header_tells_the_version(tmp_path: Path, version: Version) -> None:
    (tmp_path / "model.plan").write_bytes(plan_bytes(version))
    assert read_plan_version(tmp_path / "model.plan") == version


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "not a TensorRT engine", id="empty"),
        pytest.param(b"ftrt", "not a TensorRT engine", id="only the tag"),
        pytest.param(b"\x08\x0a" + bytes(60), "not a TensorRT engine", id="an ONNX file"),
        pytest.param(plan_bytes(tag=b"vtrt"), "TensorRT for RTX", id="an engine for RTX"),
        pytest.param(plan_bytes(size=80)[:60], "has 60 bytes and its header says 80", id="half"),
    ],
)
def test_what_is_no_whole_engine_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "model.plan").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_plan_version(tmp_path / "model.plan")


def test_a_missing_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.plan: cannot be read: No such file"):
        read_plan_version(tmp_path / "model.plan")
