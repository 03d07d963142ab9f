"""From a model's version to its engine: planned without a GPU, built with one, then installed."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from mmctl.diagnostics import Position, Severity
from mmctl.errors import InputError, Refused, WorldError
from mmctl.exporters.base import Say
from mmctl.exporters.precision import FP16_FILE, SERVED, TENSORRT_FILE
from mmctl.exporters.spec import FILE, Model, read_model
from mmctl.exporters.tensorrt.builders import EngineBuilder, find_builder, own_user
from mmctl.exporters.tensorrt.container import container_argv
from mmctl.exporters.tensorrt.entry import EngineEntry
from mmctl.exporters.tensorrt.gpus import local_capabilities
from mmctl.exporters.tensorrt.spec import PLAN, SPEC, BuildSpec, render_spec
from mmctl.exporters.tensorrt.stamp import batches_of, write_stamp
from mmctl.exporters.tensorrt.target import target_for
from mmctl.files import link_or_copy, sha256_file, write_text, writing_to
from mmctl.lint.engines import EngineStamp, check_engine
from mmctl.tensors import Signature
from mmctl.triton.plan_header import read_plan_version
from mmctl.triton.profiles import profiles_for
from mmctl.triton.releases import render_version
from mmctl.triton.repository import Lock, read_lock
from mmctl.workspace import Workspace

SOURCES = {"fp32": SERVED, "fp16": FP16_FILE, "int8": TENSORRT_FILE}
"""By precision of the model: the file that TensorRT is given."""


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """`folder` is where build.json and the engine are; `version_folder` where it is served from.
    `command` makes the engine on any machine that has the GPU, run in the workspace.
    """

    spec: BuildSpec
    entry: EngineEntry
    folder: Path
    version_folder: Path
    files: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that was built, checked and installed at `path`."""

    path: Path
    stamp: EngineStamp


def plan_engine(workspace: Workspace, name: str, target: str | None = None) -> PlannedEngine:
    """What `mmctl engine` would do. Raises InputError for what no engine can be made from."""
    model = read_model(workspace, name)
    entry = model.file.engine
    if entry is None:
        raise InputError(
            f"{model.place.shown}/{FILE}: has no `engine`", hint="add `engine: {}` to it"
        )
    lock = read_lock(model.place.folder)
    if lock is None:
        raise InputError(f"`{name}` was never exported", hint=f"run `mmctl export {name}`")
    spec = _spec(model, lock, entry, target)
    folder = workspace.state / "engines" / name
    files = tuple(path for path in lock.files if path in (spec.onnx, f"{spec.onnx}.data"))
    command = container_argv(spec, f"$PWD/{workspace.shown(folder)}", user=own_user())
    version_folder = model.place.folder / str(lock.version)
    return PlannedEngine(spec, entry, folder, version_folder, files, command)


def write_plan(planned: PlannedEngine) -> Path:
    """Put build.json and the ONNX file where the command looks for them."""
    for name in planned.files:
        source, copy = planned.version_folder / name, planned.folder / name
        if not source.is_file():
            raise InputError(
                f"{source}: no such file", hint=f"run `mmctl export {planned.spec.model}`"
            )
        if not copy.is_file() or sha256_file(copy) != sha256_file(source):
            with writing_to(copy):
                copy.unlink(missing_ok=True)
            link_or_copy(source, copy)
    write_text(planned.folder / SPEC, render_spec(planned.spec))
    return planned.folder / SPEC


def build_engine(planned: PlannedEngine, say: Say, builder: EngineBuilder | None = None) -> Engine:
    """Write the plan, build the engine and install it in the version folder.

    Without a GPU raises WorldError that names the plan and the command. Raises Refused when the
    engine does not fit its target; then nothing is installed.
    """
    written = write_plan(planned)
    capabilities = local_capabilities()
    if not capabilities:
        raise WorldError(
            f"this machine has no NVIDIA GPU, so no engine was built; {written} says what to build",
            hint=f"where there is one, run:\n  {shown_command(planned)}\n"
            f"then put {PLAN} into {planned.version_folder}",
        )
    builder = builder or find_builder(planned.entry.builder)
    say(f"{planned.spec.model}: building an engine with {builder.title}; this takes minutes")
    builder.build(planned.spec, planned.folder)
    return install(planned, capabilities[0], say)


def install(planned: PlannedEngine, capability: str, say: Say) -> Engine:
    """Check the engine in `planned.folder` against its target, then put it beside the ONNX file."""
    built = planned.folder / PLAN
    stamp = EngineStamp(read_plan_version(built), batches_of(planned.spec.profiles), capability)
    batches = stamp.batches or (0, 0)
    target = planned.spec.target
    for finding in check_engine(Position(str(built)), stamp, target, batches[1]):
        if finding.severity is Severity.ERROR:
            raise Refused(f"{finding.code} {finding.message}", hint=finding.hint)
        say(f"{planned.spec.model}: {finding.code} {finding.message}")
    final = planned.version_folder / PLAN
    with writing_to(final):
        final.unlink(missing_ok=True)
        shutil.copyfile(built, final)
    write_stamp(planned.version_folder, stamp, planned.spec.onnx_sha256)
    version = render_version(stamp.tensorrt)
    say(f"{planned.spec.model}: engine of TensorRT {version} for compute capability {capability}")
    return Engine(final, stamp)


def shown_command(planned: PlannedEngine) -> str:
    """The command as a shell takes it: `$PWD` stays open."""
    words = (shlex.quote(word) if "$PWD" not in word else f'"{word}"' for word in planned.command)
    return " ".join(words)


def _spec(model: Model, lock: Lock, entry: EngineEntry, target: str | None) -> BuildSpec:
    file = model.file
    onnx = SOURCES.get(file.precision)
    if onnx is None or onnx not in lock.files:
        raise InputError(
            f"{model.place.shown}: version {lock.version} has no {onnx or 'file for TensorRT'}, "
            f"which engines of `precision: {file.precision}` are made from",
            hint=f"add `quantize: {{tensorrt: true}}` and run `mmctl export {model.name}`"
            if file.precision == "int8"
            else f"run `mmctl export {model.name}`",
        )
    signature = _served_signature(model, lock)
    return BuildSpec(
        model=model.name,
        version=lock.version,
        onnx=onnx,
        onnx_sha256=lock.files[onnx],
        profiles=profiles_for(signature, file.batching, file.shapes),
        workspace_mb=entry.workspace_mb,
        target=target_for(model.place.workspace, target),
    )


def _served_signature(model: Model, lock: Lock) -> Signature:
    batched = lock.signature.max_batch
    return replace(lock.signature, max_batch=model.file.batching.max_batch * batched)
