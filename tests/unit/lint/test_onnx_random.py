"""Random configs of real ONNX files: the checker and the ONNX backend's own rules agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lint_repositories import found
from onnx_completion_models import MODELS
from onnx_samples import pbtxt

from mmctl.diagnostics import Finding, Severity
from mmctl.lint.onnx.batches import ONNX_BATCH_CHECKS
from mmctl.lint.onnx.tensors import ONNX_TENSOR_CHECKS
from mmctl.triton.onnx_backend import (
    LoadError,
    check_entries,
    check_model,
    complete,
    entry,
    model_tensor,
    read_config,
)

CHECKS = (*ONNX_TENSOR_CHECKS, *ONNX_BATCH_CHECKS)

pytest.importorskip("onnx")


def test_random_configs_are_judged_as_by_the_backend(tmp_path: Path) -> None:
    """Nothing that loads is an error, and little that does not load stays without a word."""
    onnxruntime = pytest.importorskip("onnxruntime")
    draw = Random(24)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    missed = 0
    for name, make in MODELS.items():
        if name == "c64":
            continue
        session = onnxruntime.InferenceSession(make(), options)
        for number in range(8):
            config = random_config(draw, session)
            refused = refusal(config, session, name)
            files = {"m/1/model.onnx": make(), "m/config.pbtxt": pbtxt(config)}
            findings = found(tmp_path / f"{name}{number}", files, CHECKS)
            errors = [f for f in findings if f.severity is Severity.ERROR and stops(f)]
            assert refused or not errors, (config, errors)
            missed += bool(refused and not errors)
    assert missed <= 8


def stops(finding: Finding) -> bool:
    """Whether it keeps the model from loading; the others break it when it is asked."""
    asked = ("row" in finding.message and finding.code == "M006") or (
        finding.code == "M005" and "in the config" not in finding.message
    )
    return not asked


def ports_of(session: Any) -> tuple[list[Any], list[Any], list[Any]]:
    inputs, defaults, outputs = (
        [model_tensor(tensor.name, tensor.type, tensor.shape) for tensor in tensors]
        for tensors in (
            session.get_inputs(),
            session.get_overridable_initializers(),
            session.get_outputs(),
        )
    )
    return inputs, defaults, outputs


def random_config(draw: Random, session: Any) -> dict[str, Any]:
    """The right config, or one with up to three changes, with sections left out at times."""
    inputs, _, outputs = ports_of(session)
    can_batch = all(tensor.shape[:1] == (-1,) for tensor in (*inputs, *outputs))
    size = draw.choice([0, 1, 8]) if draw.random() < 0.3 else 8 * can_batch
    sections = {
        name: [entry(t, size * can_batch) for t in tensors if t.dtype.startswith("TYPE_")]
        for name, tensors in (("input", inputs), ("output", outputs))
    }
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        change(draw, draw.choice([*sections.values()]))
    kept = {
        name: [e for e in entries if 0 not in e["dims"] and e["data_type"] != "TYPE_INVALID"]
        for name, entries in sections.items()
        if draw.random() < 0.85
    }
    return {
        "backend": "onnxruntime",
        "max_batch_size": size,
        **{name: entries for name, entries in kept.items() if entries},
    }


def change(draw: Random, entries: list[dict[str, Any]]) -> None:
    if not entries:
        return
    chosen = draw.choice(entries)
    match draw.randrange(6):
        case 0:
            chosen["name"] += "x"
        case 1:
            chosen["data_type"] = draw.choice(["TYPE_FP32", "TYPE_INT64", "TYPE_STRING"])
        case 2:
            chosen["dims"] = [draw.choice([-1, 1, 4]), *chosen["dims"]]
        case 3:
            chosen["dims"] = chosen["dims"][1:] or [1]
        case 4:
            place = draw.randrange(len(chosen["dims"]))
            chosen["dims"][place] = draw.choice([-1, 1, 2, 4])
        case 5:
            entries.remove(chosen)


def refusal(config: Mapping[str, Any], session: Any, name: str) -> str:
    """What the backend says with the shapes that ONNX Runtime has, "" for a config that loads."""
    inputs, defaults, outputs = ports_of(session)
    fields = {**config, "name": name}
    try:
        read = read_config(fields)
        fields.update(complete(read, inputs, outputs).changes)
        check_entries(fields)
        check_model(read_config(fields), inputs, defaults, outputs)
    except LoadError as error:
        return str(error)
    return ""
