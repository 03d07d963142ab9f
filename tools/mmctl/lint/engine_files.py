"""Engines in a model repository: T001 to T003, from an engine's first bytes and the file beside it.

Nothing reads the tensors of an engine without its GPU. Beside it may lie the ONNX file that it was
built from, and engine.json, which `mmctl engine` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mmctl.diagnostics import Position, Rule, Severity
from mmctl.errors import InputError
from mmctl.lint.engines import RANGE_RULE, VERSION_RULE, EngineStamp, version_problem
from mmctl.lint.onnx.file import NotRead, Unreadable, read_onnx
from mmctl.lint.onnx.graph import Port
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model, Repository, join, read_bytes
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.onnx_backend import MODEL_TYPES
from mmctl.triton.plan_header import read_plan_version
from mmctl.triton.releases import Release, Version, parse_version
from mmctl.triton.schema import word_of

STAMP = "engine.json"
SCHEMA = 1
ONNX = "model.onnx"
BACKEND = "tensorrt"

TENSORRT_10 = Release(24, 5)
"""The first Triton with TensorRT 10, which has INT64."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine file that Triton would load. `capability` is the GPU that the config names for it,
    "" for any; `version` is None where `problem` tells what is wrong with the file.
    """

    path: Path
    at: Position
    capability: str
    version: Version | None
    problem: str
    hint: str | None
    stamp: EngineStamp | None


@remembered
def _engines(model: Model) -> tuple[Engine, ...]:
    """The engines of the served versions, as far as they are there."""
    if model.backend != BACKEND:
        return ()
    named = {"": model.model_filename, **model.message.cc_model_filenames}
    return tuple(
        _engine(model, version, name, capability)
        for version in model.served_versions
        for capability, name in named.items()
        if name in model.versions[version] and (model.path / str(version) / name).is_file()
    )


def _engine(model: Model, version: int, name: str, capability: str) -> Engine:
    path = model.path / str(version) / name
    found, problem, hint = None, "", None
    try:
        found = read_plan_version(path)
    except InputError as error:
        problem, hint = str(error).removeprefix(f"{path}: "), error.hint
    at = Position(join(model.shown, f"{version}/{name}"))
    # engine.json is about the engine that mmctl installs, which has the usual name.
    stamp = _read_stamp(path.parent) if name == model.model_filename else None
    return Engine(path, at, capability, found, problem, hint, stamp)


def _read_stamp(folder: Path) -> EngineStamp | None:
    """What engine.json says; None where there is none, or it is not ours."""
    try:
        said = json.loads(read_bytes(folder / STAMP))
        if said["schema"] != SCHEMA:
            return None
        batches = said["batches"]
        return EngineStamp(
            parse_version(said["tensorrt"]),
            None if batches is None else (int(batches[0]), int(batches[1])),
            str(said["compute_capability"]),
        )
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        InputError,
    ):
        return None


# ---------------------------------------------------------------- T001


def _find_version(model: Model, repository: Repository) -> Iterator[Mistake]:
    target = repository.target
    for engine in _engines(model):
        if engine.version is None:
            yield Mistake(engine.at, engine.problem, engine.hint or "build the engine again")
            continue
        problem = version_problem(engine.version, str(target), target.release, target.tensorrt)
        if problem is not None:
            message, severity = problem
            hint = "build it with the TensorRT of the server, or correct the target"
            yield Mistake(engine.at, message, hint, severity)


ENGINE_VERSION = Check(VERSION_RULE, _find_version)

# ---------------------------------------------------------------- T002


def _find_range(model: Model, repository: Repository) -> Iterator[Mistake]:
    most, has = model.message.max_batch_size, repository.target.capability
    for engine in _engines(model):
        if engine.stamp is None:
            continue
        low, high = engine.stamp.batches or (1, most)
        at = model.at("max_batch_size")
        if most > high:
            text = f"the engine takes batches of {low} to {high}, and max_batch_size is {most}"
            yield Mistake(at, text, f"write `max_batch_size: {high}`, or build for larger batches")
        elif low > 1 and most > 0:
            text = f"the engine takes batches of {low} to {high}: smaller ones fail"
            hint = "build it with a profile that begins at 1: the last requests come alone"
            yield Mistake(at, text, hint, Severity.WARNING)
        built = engine.stamp.capability
        if has and built and built != has and engine.capability in ("", has):
            text = f"the engine was built on a GPU of compute capability {built}, and "
            text += f"{repository.target} has {has}"
            yield Mistake(engine.at, text, "build the engine on the GPU that it is for")


ENGINE_RANGE = Check(RANGE_RULE, _find_range)

# ---------------------------------------------------------------- T003

ENGINE_TYPES = frozenset(
    f"TYPE_{word}" for word in ("BOOL", "UINT8", "INT8", "INT32", "INT64", "FP16", "FP32", "BF16")
)
"""What inputs and outputs of an engine can be."""


def _find_types(model: Model, repository: Repository) -> Iterator[Mistake]:
    if model.backend != BACKEND:
        return
    release = repository.target.release
    sources = _source_types(model) if any(e.stamp for e in _engines(model)) else {}
    for side, entries in (("input", model.message.input), ("output", model.message.output)):
        for number, entry in enumerate(entries):
            said = word_of(entry, "data_type") or "TYPE_INVALID"
            at = model.at(side, number, "data_type")
            where = f"{side} `{entry.name}`"
            engine = _as_in_engine(sources.get(entry.name, ""), release)
            if said not in ENGINE_TYPES and said != "TYPE_INVALID":
                text = f"{where} is {said}, which no TensorRT engine takes or gives"
                yield Mistake(at, text, f"known here: {', '.join(sorted(ENGINE_TYPES))}")
            elif said == "TYPE_INT64" and release is not None and release < TENSORRT_10:
                text = f"{where} is TYPE_INT64, which the TensorRT of Triton {release} lacks"
                yield Mistake(at, text, "write `data_type: TYPE_INT32`: it came with 24.05")
            elif engine not in ("", said) and said != "TYPE_INVALID":
                text = f"{where} is {said} in the config, and {engine} in the engine"
                hint = (
                    f"write `data_type: {engine}`: precision changes the inside of an engine only"
                )
                yield Mistake(at, text, hint)


def _source_types(model: Model) -> Mapping[str, str]:
    """Types by tensor of the ONNX file that `mmctl engine` built the engine from."""
    for version in reversed(model.served_versions):
        if ONNX in model.versions[version]:
            try:
                file = read_onnx(model.path / str(version) / ONNX)
            except (Unreadable, NotRead, OSError):
                return {}
            ports: tuple[Port, ...] = (*file.inputs, *file.outputs)
            return {port.name: MODEL_TYPES.get(port.kind, "") for port in ports}
    return {}


def _as_in_engine(onnx_type: str, release: Release | None) -> str:
    """The type that TensorRT makes of a tensor of the ONNX file, "" where that is not sure."""
    if onnx_type == "TYPE_INT64" and (release is None or release < TENSORRT_10):
        return ""
    return onnx_type if onnx_type in ENGINE_TYPES else ""


ENGINE_TYPE = Check(
    Rule(
        "T003",
        "type that the engine does not have",
        "An engine has the types of the ONNX file it was built from. Half precision is inside of "
        "it: inputs and outputs stay FP32 unless they were asked for otherwise. INT64 came with "
        "TensorRT 10 (Triton 24.05), before which such inputs are INT32; there is no text.",
        wrong="data_type: TYPE_FP16  # trtexec --fp16",
        right="data_type: TYPE_FP32",
    ),
    _find_types,
)

ENGINE_CHECKS: tuple[Check, ...] = (ENGINE_VERSION, ENGINE_RANGE, ENGINE_TYPE)
