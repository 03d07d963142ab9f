"""A step, or a copy of tensors -> a Python model: the shipped runner, and data that it reads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from mmctl.files import digest_of, render_json
from mmctl.pipeline.batch import STEP_MAX_BATCH
from mmctl.pipeline.graph import StepCall
from mmctl.tensors import Signature, TensorSpec
from mmctl.triton.generate import PYTHON, configs_for
from mmctl.triton.options import ServingOptions
from mmctl.triton.repository import GeneratedModel, Resource

SCHEMA = 1
RUNNER = "step_model"
COPY = StepCall("ready_copy", "make", options={})


@dataclass(frozen=True, slots=True)
class Shown:
    """An output that shows a tensor under another name."""

    name: str
    tensor: TensorSpec


@dataclass(frozen=True, slots=True)
class StepModel:
    """A Python model to generate: `call` for `node` of a pipeline, with the outputs it needs.

    `copies` are outputs that show again what another output gives.
    """

    name: str
    node: str
    call: StepCall
    takes: tuple[TensorSpec, ...]
    gives: tuple[TensorSpec, ...]
    copies: tuple[Shown, ...] = field(default=())


def step_model(model: StepModel, *, pipeline_max_batch: int, origin: str) -> GeneratedModel:
    """The folder of a step. Its version moves with all that it is made from, not with settings."""
    signature = _signature(model, pipeline_max_batch)
    files = _files(model, batched=signature.max_batch > 0)
    options = ServingOptions(batching=model.call.batching, instances=model.call.instances)
    key = {
        "files": {path: hashlib.sha256(content).hexdigest() for path, content in files.items()},
        "resources": {p: [a.package, a.sha256] for p, a in _packaged(model.call).items()},
        "requirements": model.call.requirements,
    }
    return GeneratedModel(
        name=model.name,
        configs=configs_for(model.name, signature, PYTHON, options),
        signature=signature,
        origin=origin,
        own_key=digest_of(key),
        files=files,
        resources={
            path: Resource(asset.package, asset.sha256)
            for path, asset in _packaged(model.call).items()
        },
    )


def _signature(model: StepModel, pipeline_max_batch: int) -> Signature:
    """A step may take more than its pipeline passes on: it joins requests of several callers."""
    copies = tuple(replace(shown.tensor, name=shown.name) for shown in model.copies)
    most = model.call.max_batch or max(STEP_MAX_BATCH, pipeline_max_batch)
    return Signature(model.takes, (*model.gives, *copies), most if pipeline_max_batch else 0)


def _files(model: StepModel, *, batched: bool) -> dict[str, bytes]:
    """Everything in the version folder that is not a package's file."""
    call = model.call
    files = {path: text.encode() for path, text in call.sources.items()}
    files |= {path: a.content for path, a in call.assets.items() if not a.package}
    if call.options is not None:
        files[f"{call.module}.py"] = shipped(call.module)
    files["model.py"] = shipped(RUNNER)
    files["step.json"] = render_json(_plan(model, batched=batched)).encode()
    return files


def _plan(model: StepModel, *, batched: bool) -> dict[str, Any]:
    """step.json, as the runner reads it."""
    call = model.call
    return {
        "schema": SCHEMA,
        "step": model.node,
        "module": call.module,
        "function": call.function,
        "options": None if call.options is None else dict(call.options),
        "inputs": [_tensor(spec) for spec in model.takes],
        "outputs": [
            *(_tensor(spec) for spec in model.gives),
            *({**_tensor(s.tensor), "name": s.name, "key": s.tensor.name} for s in model.copies),
        ],
        "batched": batched,
        "rows": call.rows,
        "join": call.join,
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    entry = {"name": spec.name, "dtype": str(spec.type.dtype), "dims": list(spec.type.dims)}
    return {**entry, "optional": True} if spec.optional else entry


def _packaged(call: StepCall) -> dict[str, Any]:
    return {path: asset for path, asset in call.assets.items() if asset.package}


def shipped(module: str) -> bytes:
    """A file of compiler/shipped, as it is."""
    return resources.files(f"{__package__}.shipped").joinpath(f"{module}.py").read_bytes()
