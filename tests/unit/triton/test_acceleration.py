"""The GPU profile: TensorRT through ONNX Runtime, or an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmctl.documents import load_entry, parse_document
from mmctl.errors import InputError, InvalidFiles
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.config import ModelConfig
from mmctl.triton.generate import ONNX, TENSORRT, Backend, configs_for
from mmctl.triton.options import ServingOptions
from mmctl.triton.pbtxt import render_config
from mmctl.triton.releases import parse_release

GPU = "configs/gpu.pbtxt"
IMAGES = Signature(
    inputs=(TensorSpec("pixels", parse_type("fp32[3,224,224]")),),
    outputs=(TensorSpec("scores", parse_type("fp32[1000]")),),
    max_batch=32,
)
TEXTS = Signature(
    inputs=(
        TensorSpec("ids", parse_type("int64[-1]")),
        TensorSpec("mask", parse_type("int64[-1]")),
    ),
    outputs=(TensorSpec("vector", parse_type("fp32[384]")),),
    max_batch=16,
)
ASKED = "optimization: {gpu: [{name: tensorrt}]}\n"
SIZES = "{min: [1], opt: [64], max: [256]}"
SHAPES = f"shapes: {{ids: {SIZES}, mask: {SIZES}}}\n"


def configs(
    text: str, signature: Signature = IMAGES, gpu: Backend | None = None, release: str = "25.10"
) -> dict[str, ModelConfig]:
    options = load_entry(ServingOptions, parse_document(text, "model.yaml"))
    releases = (parse_release(release),)
    return configs_for("net", signature, ONNX, options, gpu=gpu, releases=releases)


def parameters(text: str, signature: Signature = IMAGES, **more: object) -> dict[str, str]:
    made = configs(text, signature, **more)[GPU].optimization  # type: ignore[arg-type]
    assert made is not None
    return dict(made.gpu[0].parameters)


def test_nothing_accelerates_unless_asked() -> None:
    assert list(configs("")) == ["config.pbtxt"]
    assert configs("instances: {gpu: 2}")[GPU].optimization is None


def test_asking_for_tensorrt_gives_a_cache_and_the_shapes_of_every_batch() -> None:
    assert parameters(ASKED + "batching: {max_batch: 32, preferred: [4, 8]}") == {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "/tmp/mmctl-engines/net",
        "trt_profile_min_shapes": "pixels:1x3x224x224",
        "trt_profile_opt_shapes": "pixels:8x3x224x224",
        "trt_profile_max_shapes": "pixels:32x3x224x224",
    }


def test_without_preferred_sizes_the_largest_batch_is_the_usual_one() -> None:
    found = parameters(ASKED + "batching: {max_batch: 32}")
    assert found["trt_profile_opt_shapes"] == "pixels:32x3x224x224"


def test_free_axes_have_the_sizes_that_are_said() -> None:
    found = parameters(ASKED + SHAPES, TEXTS)
    assert found["trt_profile_min_shapes"] == "ids:1x1,mask:1x1"
    assert found["trt_profile_max_shapes"] == "ids:16x256,mask:16x256"


def test_what_the_user_wrote_wins() -> None:
    text = "optimization: {gpu: [{name: tensorrt, parameters: {trt_engine_cache_path: /c}}]}"
    assert parameters(text)["trt_engine_cache_path"] == "/c"


def test_fixed_shapes_need_no_profile() -> None:
    fixed = replace(IMAGES, max_batch=0)
    assert not [key for key in parameters(ASKED, fixed) if key.startswith("trt_profile")]


def test_loading_waits_for_the_engine_so_that_no_user_does() -> None:
    made = configs(ASKED + SHAPES, TEXTS)[GPU]
    assert {name: one.dims for name, one in made.warmups[0].inputs.items()} == {
        "ids": (64,),
        "mask": (64,),
    }
    own = configs(ASKED + "warmup: [{batch: 2, count: 3}]")[GPU]
    assert [(one.batch_size, one.count) for one in own.warmups] == [(2, 3)]


def test_an_npu_has_a_profile_of_its_own_on_the_cpus_side() -> None:
    made = configs("optimization: {npu: [{name: cann, parameters: {device_id: '1'}}]}")
    assert made["config.pbtxt"].optimization is None
    found = made["configs/npu.pbtxt"]
    assert found.optimization is not None
    assert [(one.name, dict(one.parameters)) for one in found.optimization.cpu] == [
        ("cann", {"device_id": "1"})
    ]
    assert found.instances[0].kind == "KIND_CPU"


def test_the_default_config_stays_the_cpus() -> None:
    made = configs(ASKED)["config.pbtxt"]
    assert made.optimization is None
    assert made.warmups == ()


def test_the_gpu_profile_may_serve_another_file() -> None:
    made = configs(ASKED, gpu=replace(ONNX, filename="model.fp16.onnx"))
    assert made["config.pbtxt"].default_model_filename == "model.onnx"
    assert made[GPU].default_model_filename == "model.fp16.onnx"


def test_an_engine_is_served_by_tensorrt_itself() -> None:
    made = configs("", gpu=TENSORRT)
    assert made["config.pbtxt"].platform == "onnxruntime_onnx"
    assert made[GPU].platform == "tensorrt_plan"
    assert made[GPU].default_model_filename == "model.plan"
    assert "kind: KIND_GPU" in render_config(made[GPU])


def test_a_model_that_is_an_engine_has_one_config() -> None:
    options = load_entry(ServingOptions, parse_document("instances: {gpu: 2}", "model.yaml"))
    made = configs_for("net", IMAGES, TENSORRT, options)
    assert list(made) == ["config.pbtxt"]
    assert made["config.pbtxt"].instances[0].kind == "KIND_GPU"
    assert made["config.pbtxt"].instances[0].count == 2


PRECISION = "optimization: {gpu: [{name: tensorrt, parameters: {precision_mode: FP16}}]}"


def test_a_precision_flag_is_passed_on_where_it_does_something() -> None:
    assert parameters(PRECISION, release="25.10")["precision_mode"] == "FP16"


@pytest.mark.parametrize(
    ("gpu", "release", "said"),
    [
        pytest.param(None, "26.07", "does nothing in Triton 26.07", id="TensorRT 11"),
        pytest.param(
            replace(ONNX, filename="model.fp16.onnx"),
            "25.10",
            "does nothing to model.fp16",
            id="FP16",
        ),
    ],
)
def test_a_precision_flag_that_does_nothing_is_refused(
    gpu: Backend | None, release: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        configs(PRECISION, gpu=gpu, release=release)


@pytest.mark.parametrize(
    ("text", "signature", "said"),
    [
        pytest.param(ASKED, TEXTS, "`ids` has free axes .*; `mask` has free axes", id="unsaid"),
        pytest.param(
            ASKED + "shapes: {pixels: {min: [3, 1], opt: [3, 1], max: [3, 1]}}",
            IMAGES,
            "the shapes of `pixels` do not fit",
            id="rank",
        ),
        pytest.param(
            ASKED,
            Signature((TensorSpec("text", parse_type("string")),), (), max_batch=4),
            "`text` is text",
            id="text",
        ),
    ],
)
def test_inputs_that_no_profile_covers_are_named(
    text: str, signature: Signature, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        configs(text, signature)


def test_an_engine_and_an_accelerator_exclude_each_other() -> None:
    with pytest.raises(InputError, match="which no `engine` runs in"):
        configs(ASKED, gpu=TENSORRT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shapes: {x: {min: [2], opt: [1], max: [4]}}", "do not ascend"),
        ("shapes: {x: {min: [1], opt: [1, 2], max: [4]}}", "differ in their number of axes"),
        ("optimization: {gpu: [{name: openvino}]}", "belongs under `cpu`"),
    ],
)
def test_mistakes_are_told_at_their_place(text: str, said: str) -> None:
    with pytest.raises(InvalidFiles, match=rf"model\.yaml:1:\d+: Y005 .*{said}"):
        configs(text)
