"""Entries of language models, which an engine serves: written without weights, engine or GPU."""

import json
from pathlib import Path

import pytest
import yaml
from model_folders import PYTHON_MODEL, write_model, write_python_model

from mmctl.building.build import Built, build
from mmctl.building.catalog import read_catalog
from mmctl.building.drift import find_drift
from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters import ExportOutcome, export_model
from mmctl.exporters.spec import read_model
from mmctl.serving.servable import without_images
from mmctl.triton.pbtxt import parse_config
from mmctl.workspace import Workspace

VLLM = """\
source:
  vllm: /models/llama
  engine: {tensor_parallel_size: 2, dtype: bfloat16, enforce_eager: true, max_model_len: 4096}
"""
TRTLLM = (
    "source: {trtllm: org/llama, engine: {tensor_parallel_size: 4, kv_cache_config: {x: 0.5}}}\n"
)

VENDOR_CONFIG = """\
name: "tensorrt_llm"
backend: "python"
instance_group [ { count: 1 kind: KIND_CPU } ]
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "streaming" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
"""

PIPELINE = """\
pipeline: chat
inputs: {text: "string[-1]"}
nodes:
  answer: {model: llama, inputs: {text_input: text}}
outputs: {reply: answer.text_output}
"""


def silent(_line: str) -> None: ...


def export(space: Workspace) -> ExportOutcome:
    return export_model(space, "llama", say=silent)


def version(space: Workspace, number: int = 1) -> Path:
    return space.models / "llama" / str(number)


def copy_vendor_files(space: Workspace) -> None:
    vendor = space.models / "llama" / "vendor"
    (vendor / "1").mkdir(parents=True)
    (vendor / "config.pbtxt").write_text(VENDOR_CONFIG)
    (vendor / "1" / "model.py").write_text(PYTHON_MODEL)
    (vendor / "1" / "helpers.py").write_text("# helps\n")
    (vendor / "1" / "model.yaml").write_text("model: another one\n")


def test_vllm_gets_its_arguments_in_the_types_of_json(workspace: Path) -> None:
    space = write_model(workspace, "llama", VLLM)
    export(space)
    assert json.loads((version(space) / "model.json").read_text()) == {
        "model": "/models/llama",
        "gpu_memory_utilization": 0.5,
        "tensor_parallel_size": 2,
        "dtype": "bfloat16",
        "enforce_eager": True,
        "max_model_len": 4096,
    }
    assert not (version(space) / "multi_lora.json").exists()


def test_the_share_of_memory_can_be_another(workspace: Path) -> None:
    space = write_model(
        workspace, "llama", "source: {vllm: a/b, engine: {gpu_memory_utilization: 0.85}}"
    )
    export(space)
    arguments = json.loads((version(space) / "model.json").read_text())
    assert arguments["gpu_memory_utilization"] == 0.85


def test_adapters_are_switched_on_and_named(workspace: Path) -> None:
    space = write_model(workspace, "llama", "source: {vllm: a/b, lora: {sql: /adapters/sql}}")
    export(space)
    assert json.loads((version(space) / "model.json").read_text())["enable_lora"] is True
    assert json.loads((version(space) / "multi_lora.json").read_text()) == {"sql": "/adapters/sql"}


def test_the_vllm_config_leaves_tensors_and_batches_to_the_backend(workspace: Path) -> None:
    space = write_model(workspace, "llama", VLLM + "parameters: {REPORT_CUSTOM_METRICS: 'true'}\n")
    export(space)
    text = (space.models / "llama" / "config.pbtxt").read_text()
    config = parse_config(text, where="")
    assert config.backend == "vllm"
    assert [(group.count, group.kind) for group in config.instances] == [(1, "KIND_MODEL")]
    assert (config.max_batch_size, config.batching) == (0, None)
    assert config.parameters == {"REPORT_CUSTOM_METRICS": "true"}
    assert "input" not in text
    assert "output" not in text


def test_another_engine_option_is_another_version(workspace: Path) -> None:
    export(write_model(workspace, "llama", VLLM))
    space = write_model(workspace, "llama", VLLM.replace("4096", "8192"))
    assert export(space).version == 2
    assert not export(space).changed


def test_the_committed_files_are_up_to_date_after_an_export(workspace: Path) -> None:
    space = write_model(workspace, "llama", VLLM)
    export(space)
    assert find_drift(space) == []


def test_tensorrt_llm_gets_its_arguments_and_ours_of_triton(workspace: Path) -> None:
    space = write_model(workspace, "llama", TRTLLM)
    export(space)
    assert yaml.safe_load((version(space) / "model.yaml").read_text()) == {
        "model": "org/llama",
        "backend": "pytorch",
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 1,
        "kv_cache_config": {"x": 0.5},
        "triton_config": {"max_batch_size": 0, "decoupled": False},
    }


def test_without_the_vendors_files_the_command_that_copies_them_is_told(workspace: Path) -> None:
    space = write_model(workspace, "llama", TRTLLM)
    said: list[str] = []
    export_model(space, "llama", say=said.append)
    assert said[0].splitlines()[-1].strip() == (
        'docker run --rm -v "$PWD/model_repository/llama:/entry" '
        "nvcr.io/nvidia/tritonserver:YY.MM-trtllm-python-py3 "
        "cp -r /app/all_models/llmapi/tensorrt_llm /entry/vendor"
    )


def test_the_vendors_files_go_in_unchanged_and_say_the_tensors(workspace: Path) -> None:
    space = write_model(workspace, "llama", TRTLLM)
    export(space)
    copy_vendor_files(space)
    said: list[str] = []
    outcome = export_model(space, "llama", say=said.append)
    assert said == ["llama: exporting version 2"]
    assert sorted(outcome.lock.files) == ["helpers.py", "model.py", "model.yaml"]
    assert (version(space, 2) / "model.py").read_text() == PYTHON_MODEL
    assert "org/llama" in (version(space, 2) / "model.yaml").read_text()
    config = parse_config((space.models / "llama" / "config.pbtxt").read_text(), where="")
    assert [(t.name, t.dims, t.optional) for t in config.inputs] == [
        ("text_input", (-1,), False),
        ("streaming", (1,), True),
    ]
    assert [tensor.name for tensor in config.outputs] == ["text_output"]
    assert (config.name, config.backend) == ("llama", "python")
    assert config.instances[0].kind == "KIND_CPU"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "source: {vllm: a/b, engine: {model: c/d}}",
            "1:29: Y005 `engine`: `model` is what `vllm` names",
            id="the model twice",
        ),
        pytest.param(
            "source: {vllm: a/b, engine: {gpu_memory_utilization: 90}}",
            "1:29: Y005 `engine`: `gpu_memory_utilization` is 90; write a share of a GPU",
            id="a share of memory in percent",
        ),
        pytest.param(
            "source: {vllm: a/b, engine: {tensor_parallel_size: two}}",
            "1:29: Y005 `engine`: `tensor_parallel_size` is 'two'; write a number of GPUs",
            id="a number of GPUs in words",
        ),
        pytest.param(
            "source: {vllm: 'package:a/b'}",
            "1:16: Y005 `vllm`: `package:a/b` is neither an absolute path on the server nor an id",
            id="weights out of a model package",
        ),
        pytest.param(
            "source: {vllm: a/b, lora: {sql: /c}, engine: {enable_lora: false}}",
            "1:9: Y005 `source`: `lora` names adapters and `enable_lora` is false",
            id="adapters that are switched off",
        ),
        pytest.param(
            "source: {trtllm: a/b, engine: {triton_config: {decoupled: true}}}",
            "1:31: Y005 `engine`: `triton_config` is written by mmctl",
            id="what mmctl writes itself",
        ),
        pytest.param(
            "source: {vllm: a/b}\nbatching: {max_batch: 8}",
            "1:1: Y005 `batching` is not for language models: the engine decides",
            id="batching that the engine does",
        ),
        pytest.param(
            "source: {trtllm: a/b}\nprecision: fp32",
            "1:1: Y005 `precision` is not for language models: the engine decides",
            id="a precision that the engine chooses",
        ),
    ],
)
def test_mistakes_are_named_at_their_place(workspace: Path, text: str, said: str) -> None:
    space = write_model(workspace, "llama", text)
    with pytest.raises(InvalidFiles) as caught:
        read_model(space, "llama")
    assert said in str(caught.value)


@pytest.mark.parametrize("text", [VLLM, TRTLLM], ids=["vllm", "trtllm"])
def test_a_pipeline_that_calls_one_is_told_so(workspace: Path, text: str) -> None:
    space = write_model(workspace, "llama", text)
    copy_vendor_files(space)
    folder = space.pipelines / "chat"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    export(space)
    with pytest.raises(InvalidFiles) as caught:
        build(space, ["chat"], silent)
    assert [finding.code for finding in caught.value.findings] == ["Y136"]
    assert "4:19: Y136 `llama` says no outputs before it is loaded" in str(caught.value)


@pytest.fixture
def both(workspace: Path) -> Workspace:
    """A language model and a model that any Triton can serve."""
    write_python_model(workspace)
    return write_model(workspace, "llama", VLLM)


def built(space: Workspace) -> Built:
    return build(space, [], silent)


def test_a_workspace_with_one_is_built_whole(both: Workspace) -> None:
    assert sorted(built(both).models) == ["echo", "llama"]
    assert sorted(read_catalog(both).locks) == ["echo", "llama"]


def test_the_embedded_server_gets_the_others_and_the_user_is_told(both: Workspace) -> None:
    said: list[str] = []
    assert without_images(both, built(both).models, [], said.append) == ("echo",)
    assert said == [
        "`llama` is not served here, only in a container whose image ends in `vllm-python-py3`"
    ]


def test_asked_for_by_name_it_is_refused_with_the_way_to_serve_it(both: Workspace) -> None:
    with pytest.raises(InputError, match="the embedded Triton has no engine for it") as caught:
        without_images(both, built(both).models, ["llama"], silent)
    assert caught.value.hint is not None
    assert "`mmctl serve llama --docker IMAGE`" in caught.value.hint
