"""Configs are completed or refused as by Triton's C++ ONNX backend: 52 models with 6 configs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from onnx_backend_alone import load_backend
from onnx_completion_models import MODELS, VARIANTS, Recorded, read_recorded


@pytest.fixture(scope="module")
def recorded(shared_dir: Path) -> Mapping[tuple[str, str], Recorded]:
    return read_recorded(shared_dir)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("models")
    for name, graph in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(graph())
    return folder


@pytest.fixture
def backend(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_backend(root, monkeypatch)


def fields_of(case: Recorded) -> dict[str, Any]:
    """The config in protobuf's own JSON form, with the name that Triton fills in."""
    from google.protobuf import json_format, text_format
    from tritonclient.grpc import model_config_pb2

    message = text_format.Parse(case.text or "", model_config_pb2.ModelConfig())
    message.name = case.name
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def test_the_models_are_those_that_were_recorded(
    recorded: Mapping[tuple[str, str], Recorded],
) -> None:
    assert set(recorded) == {(model, variant) for model in MODELS for variant in VARIANTS}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_config_is_completed_or_refused_like_on_the_c_backend(
    backend: ModuleType,
    files: Path,
    recorded: Mapping[tuple[str, str], Recorded],
    model: str,
    variant: str,
) -> None:
    case = recorded[model, variant]
    file = str(files / f"{model}.onnx")
    fields = fields_of(case)
    refusal = None
    try:
        completion = backend.complete(backend.rules.read_config(fields), file, 4)
        fields.update(completion.changes)
        assert case.log in (completion.log, None)
        backend.rules.check_entries(fields)
        config = backend.rules.read_config(fields)
        backend.check(config, backend.open_session(config, file))
    except backend.rules.LoadError as error:
        refusal = f"{error.status}: {error}".replace(file, f"<path>/{case.name}/1/model.onnx")
    # What ONNX Runtime says is an internal error of the C++ backend.
    assert refusal == (case.refusal and case.refusal.removeprefix("Internal: "))
    if case.config is not None:
        assert sections(fields) == sections(case.config)


def sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a completion can change. The order of inputs and outputs counts, that of keys does not;
    what Triton fills into `dynamic_batching` afterwards is its own.
    """
    return {
        "max_batch_size": config.get("max_batch_size", 0),
        "input": config.get("input", []),
        "output": config.get("output", []),
        "dynamic_batching": "dynamic_batching" in config,
    }
