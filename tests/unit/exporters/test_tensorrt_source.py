"""A ready engine as a model: what model.yaml says of it, and whether its target loads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_files import V10, V11, plan_bytes
from model_folders import export_here, write_model

from mmctl.errors import InputError, InvalidFiles, MmctlError, Refused
from mmctl.exporters.configs import configs_of
from mmctl.exporters.spec import read_model
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.releases import Version
from mmctl.triton.repository import Lock

YAML = """\
source: {tensorrt: model.plan, batches: [1, 32], capability: "9.0"}
inputs: {pixels: "fp32[3,224,224]"}
outputs: {scores: "fp32[1000]"}
batching: {max_batch: 32}
"""
GPU = "targets: {prod: {url: 'grpc://gpu', release: '%s', gpus: 1}}\n"


def export(root: Path, release: str, version: Version = V10, yaml: str = YAML) -> Path:
    (root / "mmctl.yaml").write_text(GPU % release)
    space = write_model(root, "net", yaml, model_plan=plan_bytes(version))
    made = export_here(space, "net", root / "out")
    assert made.signature.inputs[0].name == "pixels"
    return root / "out"


def test_an_engine_that_fits_is_copied_with_what_is_known_of_it(tmp_path: Path) -> None:
    out = export(tmp_path, "25.10")
    assert (out / "model.plan").read_bytes() == plan_bytes(V10)
    assert json.loads((out / "engine.json").read_text()) == {
        "schema": 1,
        "tensorrt": "10.13.3.9",
        "batches": [1, 32],
        "compute_capability": "9.0",
        "onnx_sha256": "",
    }


def test_an_engine_of_another_tensorrt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"T001 .*TensorRT 11\.1\.0\.106.*`prod` \(Triton 25\.10\)"):
        export(tmp_path, "25.10", V11)
    assert not list((tmp_path / "out").iterdir())


def test_what_nobody_checked_is_kept_as_evidence_not_refused(tmp_path: Path) -> None:
    (tmp_path / "mmctl.yaml").write_text(GPU % "25.08")
    space = write_model(tmp_path, "net", YAML, model_plan=plan_bytes(V10))
    (gate,) = export_here(space, "net", tmp_path / "out").evidence
    assert "not checked" in gate["unsure"][0]


def test_without_a_gpu_target_the_release_of_the_defaults_counts(workspace: Path) -> None:
    space = write_model(workspace, "net", YAML, model_plan=plan_bytes(V10))
    with pytest.raises(Refused, match=r"Triton 24\.10"):
        export_here(space, "net", workspace / "out")


def test_its_config_is_for_gpus_only(workspace: Path) -> None:
    model = read_model(write_model(workspace, "net", YAML, model_plan=plan_bytes()), "net")
    texts = configs_of(model, Lock(1, "key", model.file.declared, {}))
    config = parse_config(texts["config.pbtxt"], where="")
    assert list(texts) == ["config.pbtxt"]
    assert (config.platform, config.default_model_filename) == ("tensorrt_plan", "model.plan")
    assert config.instances[0].kind == "KIND_GPU"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param("[1, 32]", "[1, 16]", "takes batches of 1 to 16, and Triton may", id="max"),
        pytest.param("[1, 32]", "[4, 32]", "takes batches of 4 to 32, and Triton may", id="min"),
        pytest.param(", batches: [1, 32]", "", "`batches` is missing", id="unsaid"),
        pytest.param('"9.0"', '"hopper"', "capability", id="GPU"),
        pytest.param(
            'inputs: {pixels: "fp32[3,224,224]"}\n', "", "`inputs` and `outputs`", id="in"
        ),
        pytest.param("model.plan", "https://a/model.plan", "`sha256` is missing", id="remote"),
    ],
)
def test_what_nothing_could_read_must_be_said(
    workspace: Path, before: str, after: str, said: str
) -> None:
    space = write_model(workspace, "net", YAML.replace(before, after), model_plan=plan_bytes())
    with pytest.raises(InvalidFiles, match=said):
        read_model(space, "net")


def test_a_file_that_is_no_engine_is_refused(workspace: Path) -> None:
    space = write_model(workspace, "net", YAML, model_plan=b"not an engine")
    with pytest.raises(InputError, match="not a TensorRT engine"):
        export_here(space, "net", workspace / "out")


def test_a_missing_file_is_named(workspace: Path) -> None:
    space = write_model(workspace, "net", YAML)
    with pytest.raises(MmctlError, match=r"`model\.plan` does not exist"):
        export_here(space, "net", workspace / "out")
