"""Steps, or a copy of tensors -> a Python model: the shipped runner, and data that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from mmctl.compiler.rows import ROWS
from mmctl.files import digest_of, render_json
from mmctl.pipeline.batch import STEP_MAX_BATCH
from mmctl.pipeline.graph import FusedSteps, Member, StepCall, Wire
from mmctl.pipeline.source import Asset
from mmctl.tensors import DType, Signature, TensorSpec, TensorType
from mmctl.triton.generate import PYTHON, configs_for
from mmctl.triton.options import ServingOptions
from mmctl.triton.repository import GeneratedModel, Resource, file_digests

SCHEMA = 2
RUNNER = "step_model"
BESIDE = ("item_lists", "model_counters", "step_reads", "step_tensors")
"""Modules that the runner imports."""
COPY = StepCall("ready_copy", "make", options={})
PACKED = TensorType(DType.BYTES)
"""A list tensor between models: the items of a row are one value."""


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
    call: StepCall | FusedSteps
    takes: tuple[TensorSpec, ...]
    gives: tuple[TensorSpec, ...]
    copies: tuple[Shown, ...] = field(default=())
    max_batch: int | None = None
    """None: what the step says, or what steps take."""


def step_model(model: StepModel, *, pipeline_max_batch: int, origin: str) -> GeneratedModel:
    """The folder of a step. Its version moves with all that it is made from, not with settings."""
    steps = _steps(model)
    signature = _signature(model, pipeline_max_batch)
    files = _files(model, steps, batched=signature.max_batch > 0)
    packaged = _packaged(steps)
    key = {
        "files": file_digests(files),
        "resources": {path: [asset.package, asset.sha256] for path, asset in packaged.items()},
        "requirements": steps.members[0].call.requirements,
    }
    return GeneratedModel(
        name=model.name,
        configs=configs_for(model.name, signature, PYTHON, _options(model.call)),
        signature=signature,
        origin=origin,
        own_key=digest_of(key),
        files=files,
        resources={p: Resource(asset.package, asset.sha256) for p, asset in packaged.items()},
    )


def _steps(model: StepModel) -> FusedSteps:
    """One step is a group of one."""
    if isinstance(model.call, FusedSteps):
        return model.call
    given = {spec.name: spec for spec in (*model.gives, *(s.tensor for s in model.copies))}
    takes = tuple(spec for spec in model.takes if spec != ROWS)
    inputs = {spec.name: Wire("", spec.name) for spec in takes}
    member = Member(model.node, model.call, inputs, takes, tuple(given.values()))
    return FusedSteps((member,), {name: Wire(model.node, name) for name in given})


def _options(call: StepCall | FusedSteps) -> ServingOptions:
    """Only steps that say nothing about how they are served become one model."""
    if isinstance(call, FusedSteps):
        return ServingOptions()
    return ServingOptions(batching=call.batching, instances=call.instances)


def _signature(model: StepModel, pipeline_max_batch: int) -> Signature:
    """A step may take more than its pipeline passes on: it joins requests of several callers."""
    copies = (replace(shown.tensor, name=shown.name) for shown in model.copies)
    own = model.call.max_batch if isinstance(model.call, StepCall) else None
    most = model.max_batch or own or max(STEP_MAX_BATCH, pipeline_max_batch)
    takes = tuple(_sent(spec) for spec in model.takes)
    gives = tuple(_sent(spec) for spec in (*model.gives, *copies))
    return Signature(takes, gives, most if pipeline_max_batch else 0)


def _sent(spec: TensorSpec) -> TensorSpec:
    """A tensor as Triton knows it."""
    return replace(spec, type=PACKED) if spec.type.items else spec


def _files(model: StepModel, steps: FusedSteps, *, batched: bool) -> dict[str, bytes]:
    """Everything in the version folder that is not a package's file."""
    files: dict[str, bytes] = {}
    for member in steps.members:
        files |= {path: text.encode() for path, text in member.call.sources.items()}
        files |= {p: a.content for p, a in member.call.assets.items() if not a.package}
        if not member.call.is_own:
            files[f"{member.call.module}.py"] = shipped(member.call.module)
    files |= {f"{module}.py": shipped(module) for module in BESIDE}
    files["model.py"] = shipped(RUNNER)
    files["step.json"] = render_json(_plan(model, steps, batched=batched)).encode()
    return files


def _plan(model: StepModel, steps: FusedSteps, *, batched: bool) -> dict[str, Any]:
    """step.json, as the runner reads it."""
    shown = {spec.name: spec.name for spec in model.gives}
    shown |= {copy.name: copy.tensor.name for copy in model.copies}
    return {
        "schema": SCHEMA,
        "inputs": [_tensor(spec) for spec in model.takes],
        "steps": [_member(member) for member in steps.members],
        "outputs": [
            {"name": name, "from": _source(steps.shows[key])} for name, key in shown.items()
        ],
        "batched": batched,
        "join": all(member.call.join for member in steps.members),
    }


def _member(member: Member) -> dict[str, Any]:
    call = member.call
    return {
        "step": member.name,
        "module": call.module,
        "function": call.function,
        "options": None if call.options is None else dict(call.options),
        "rows": call.rows,
        "inputs": [
            {**_tensor(spec), "from": _source(member.inputs[spec.name])} for spec in member.takes
        ],
        "gives": [_tensor(spec) for spec in member.gives],
    }


def _source(wire: Wire) -> list[str]:
    return [wire.node, wire.tensor]


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    entry = {"name": spec.name, "dtype": str(spec.type.dtype), "dims": list(spec.type.dims)}
    flags = {"optional": spec.optional, "items": spec.type.items}
    return {**entry, **{name: True for name, is_set in flags.items() if is_set}}


def _packaged(steps: FusedSteps) -> dict[str, Asset]:
    return {
        path: asset
        for member in steps.members
        for path, asset in member.call.assets.items()
        if asset.package
    }


def shipped(module: str) -> bytes:
    """A file of compiler/shipped, as it is."""
    return resources.files(f"{__package__}.shipped").joinpath(f"{module}.py").read_bytes()
