"""From lock and model.yaml to the configs that are committed."""

from pathlib import Path

import pytest
from model_folders import PYTHON_YAML, write_model

from mmctl.diagnostics import Severity
from mmctl.errors import InputError
from mmctl.exporters.configs import configs_of, doubts_about
from mmctl.exporters.spec import Model, read_model
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.repository import Lock

YAML = "source: {onnx: net.onnx}\nbatching: {max_batch: 16}\n"


def lock(*, batched: bool = True) -> Lock:
    x = TensorSpec("x", parse_type("fp32[4]"))
    y = TensorSpec("y", parse_type("fp32"))
    return Lock(1, "key", Signature((x,), (y,), max_batch=int(batched)), {})


def model(workspace: Path, yaml: str) -> Model:
    return read_model(write_model(workspace, "net", yaml), "net")


def test_how_large_a_batch_may_be_comes_from_model_yaml(workspace: Path) -> None:
    texts = configs_of(model(workspace, YAML), lock())
    config = parse_config(texts["config.pbtxt"], where="")
    assert list(texts) == ["config.pbtxt"]
    assert config.max_batch_size == 16
    assert config.platform == "onnxruntime_onnx"
    assert config.default_model_filename == "model.onnx"
    assert config.outputs[0].dims == (1,)


def test_gpu_instances_get_a_profile_of_their_own(workspace: Path) -> None:
    texts = configs_of(model(workspace, YAML + "instances: {gpu: 2}\n"), lock())
    assert sorted(texts) == ["config.pbtxt", "configs/gpu.pbtxt"]


VERIFY = "verify: {data: 'a:held_out', calibration: 'a:b'}\n"
TENSORRT = "optimization: {gpu: [{name: tensorrt}]}\n"


@pytest.mark.parametrize(
    ("more", "on_gpus"),
    [
        pytest.param("precision: fp16\n", "model.fp16.onnx", id="FP16 is for GPUs alone"),
        pytest.param("precision: int8\n", None, id="INT8 is for CPUs"),
        pytest.param("precision: int8\ninstances: {gpu: 1}\n", "model.onnx", id="unless said so"),
        pytest.param(
            f"precision: int8\nquantize: {{tensorrt: true}}\n{TENSORRT}",
            "model.trt.onnx",
            id="INT8 as TensorRT takes it, where TensorRT runs it",
        ),
        pytest.param("engine: {}\n", "model.plan", id="an engine"),
    ],
)
def test_gpus_may_serve_another_file(workspace: Path, more: str, on_gpus: str | None) -> None:
    texts = configs_of(model(workspace, YAML + VERIFY + more), lock())
    cpu = parse_config(texts["config.pbtxt"], where="")
    assert cpu.default_model_filename == "model.onnx"
    if on_gpus is None:
        assert list(texts) == ["config.pbtxt"]
        return
    gpu = parse_config(texts["configs/gpu.pbtxt"], where="")
    assert gpu.default_model_filename == on_gpus


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("precision: int8\n", id="static or dynamic, as the graph has it"),
        pytest.param("precision: int8\nquantize: {method: dynamic}\n", id="dynamic"),
    ],
)
def test_int8_of_cpus_that_is_given_to_tensorrt_is_warned_of(workspace: Path, more: str) -> None:
    (finding,) = doubts_about(model(workspace, YAML + VERIFY + more + TENSORRT))
    line = len((YAML + VERIFY + more).splitlines()) + 1
    assert finding.text().startswith(
        f"model_repository/net/model.yaml:{line}:16: T005 `net` gives TensorRT model.onnx, INT8 as "
        "CPUs compute it"
    )
    assert finding.severity is Severity.WARNING
    assert "quantize: {tensorrt: true}" in str(finding.hint)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("precision: int8\ninstances: {gpu: 1}\n", id="on a GPU without TensorRT"),
        pytest.param(
            f"precision: int8\nquantize: {{tensorrt: true}}\n{TENSORRT}", id="in its own form"
        ),
        pytest.param(f"precision: fp16\n{TENSORRT}", id="FP16"),
        pytest.param(TENSORRT, id="FP32"),
    ],
)
def test_what_tensorrt_parses_gives_no_warning(workspace: Path, more: str) -> None:
    assert doubts_about(model(workspace, YAML + VERIFY + more)) == []


def test_a_python_source_runs_in_the_python_backend(workspace: Path) -> None:
    texts = configs_of(model(workspace, PYTHON_YAML), lock())
    config = parse_config(texts["config.pbtxt"], where="")
    assert (config.backend, config.default_model_filename) == ("python", "model.py")


@pytest.mark.parametrize(
    ("yaml", "batched"), [(YAML, False), (YAML.replace("{max_batch: 16}", "none"), True)]
)
def test_a_lock_of_the_other_kind_of_batching_must_be_exported_anew(
    workspace: Path, yaml: str, batched: bool
) -> None:
    with pytest.raises(InputError, match="a batch axis") as caught:
        configs_of(model(workspace, yaml), lock(batched=batched))
    assert caught.value.hint == "run `mmctl export net`"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("labels: {z: words.txt}\n", "`labels` names `z`"),
        ("shapes: {y: {min: [1], opt: [2], max: [4]}}\n", "`shapes` names `y`"),
        ("warmup: [{dims: {y: [4]}}]\n", "`warmup` names `y`"),
    ],
)
def test_options_name_tensors_that_the_model_has(workspace: Path, option: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        configs_of(model(workspace, YAML + option), lock())
