"""A signature and options -> configs."""

from typing import Any

import pytest

from mmctl.documents import load_entry, parse_document
from mmctl.errors import InputError, InvalidFiles
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.config import ModelConfig
from mmctl.triton.generate import ONNX, PYTHON, Backend, configs_for
from mmctl.triton.options import ServingOptions
from mmctl.triton.pbtxt import parse_config, render_config

SIGNATURE = Signature(
    inputs=(TensorSpec("x", parse_type("fp32[-1]")),),
    outputs=(TensorSpec("y", parse_type("fp32")),),
    max_batch=16,
)


def configs(text: str, signature: Signature = SIGNATURE, backend: Backend = ONNX) -> Any:
    options = load_entry(ServingOptions, parse_document(text, "model.yaml"))
    return configs_for("m", signature, backend, options)


def config(text: str, signature: Signature = SIGNATURE, backend: Backend = ONNX) -> ModelConfig:
    found: ModelConfig = configs(text, signature, backend)["config.pbtxt"]
    return found


def test_the_default_config_loads_on_any_machine() -> None:
    made = configs("instances: {gpu: 2, devices: [0, 1]}")
    assert made["config.pbtxt"].instances[0].kind == "KIND_AUTO"
    assert made["configs/gpu.pbtxt"].instances[0].kind == "KIND_GPU"
    assert made["configs/gpu.pbtxt"].instances[0].gpus == (0, 1)


def test_counts_are_always_written() -> None:
    assert "count: 1" in render_config(config(""))
    assert config("instances: {cpu: 3}").instances[0].count == 3


def test_python_models_stay_on_the_cpu() -> None:
    assert config("", backend=PYTHON).instances[0].kind == "KIND_CPU"


def test_delays_are_written_in_microseconds_and_late_requests_rejected() -> None:
    made = config("batching: {max_batch: 16, max_delay_ms: 2.5, queue_timeout_ms: 100}")
    assert made.batching is not None
    assert made.batching.max_delay_us == 2500
    assert made.batching.queue is not None
    assert (made.batching.queue.timeout_us, made.batching.queue.action) == (100_000, "REJECT")


@pytest.mark.parametrize("preset", ["latency", "throughput"])
def test_a_preset_batches(preset: str) -> None:
    assert config(f"batching: {preset}").batching is not None


def test_without_a_batch_axis_there_is_no_scheduler() -> None:
    unbatched = Signature(SIGNATURE.inputs, SIGNATURE.outputs, max_batch=0)
    assert config("batching: none", unbatched).batching is None


def test_a_preferred_size_above_the_maximum_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidFiles, match=r"model\.yaml:1:11: Y005 .*preferred size 9 is above"):
        config("batching: {max_batch: 8, preferred: [4, 9]}")


FIXED = Signature((TensorSpec("x", parse_type("fp32[4]")),), SIGNATURE.outputs, max_batch=16)
TWO_OUTPUTS = Signature(
    FIXED.inputs, (*FIXED.outputs, TensorSpec("z", parse_type("fp32"))), max_batch=16
)


@pytest.mark.parametrize("backend", [ONNX, PYTHON])
@pytest.mark.parametrize(
    ("signature", "why"), [(SIGNATURE, "free axes"), (TWO_OUTPUTS, "several outputs")]
)
def test_tritons_cache_is_refused_where_it_would_answer_wrongly(
    signature: Signature, why: str, backend: Backend
) -> None:
    """Its key has neither shapes nor the outputs that were asked for."""
    with pytest.raises(InputError, match=why) as refused:
        config("response_cache: true", signature, backend)
    assert "the client's own cache" in str(refused.value.hint)


def test_tritons_cache_is_off_unless_it_is_asked_for() -> None:
    assert config("response_cache: true", FIXED).response_cache
    assert not config("", FIXED).response_cache


def test_warm_up_needs_sizes_for_free_axes() -> None:
    with pytest.raises(InputError, match="free axes"):
        config("warmup: [{batch: 2}]")
    made = config("warmup: [{batch: 2, dims: {x: [16]}}]")
    assert made.warmups[0].inputs["x"].dims == (16,)


def test_everything_said_survives_the_text() -> None:
    made = configs(
        "optimization:\n  graph_level: 1\n  gpu: [{name: cuda, parameters: {gpu_mem_limit: '9'}}]\n"
        "parameters: {intra_op_thread_count: '2'}\nlabels: {y: labels.txt}"
    )
    assert made["config.pbtxt"].outputs[0].label_filename == "labels.txt"
    for one in made.values():
        assert parse_config(render_config(one), where="t") == one
