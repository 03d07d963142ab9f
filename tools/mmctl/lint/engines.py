"""Whether TensorRT runs an engine, or a file, where it is sent: T001, T002 and T005. Pure.

The rules about engines in repositories are in `engine_files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mmctl.diagnostics import Finding, Position, Rule, Severity
from mmctl.triton.releases import (
    Release,
    Verdict,
    Version,
    fits_release,
    render_version,
    same_version,
    tensorrt_in,
)

ENGINE_VERSION = "T001"
ENGINE_RANGE = "T002"
NOT_FOR_TENSORRT = "T005"

VERSION_RULE = Rule(
    ENGINE_VERSION,
    "engine of another TensorRT, or no engine",
    "TensorRT loads an engine only in the very version that made it. Build the engine with the "
    "image of the release that serves it: `mmctl engine MODEL`.",
    wrong="Triton 24.10 (TensorRT 10.5): model.plan of TensorRT 10.13",
    right="docker run nvcr.io/nvidia/tensorrt:24.10-py3 trtexec --onnx=... --saveEngine=model.plan",
)
RANGE_RULE = Rule(
    ENGINE_RANGE,
    "engine for other sizes or another GPU",
    "An engine runs for the batch sizes of its optimisation profile, which must cover 1 to "
    "max_batch_size, and on GPUs of the architecture that it was built on.",
    wrong="trtexec --onnx=model.onnx  # max_batch_size: 16",
    right="trtexec --onnx=model.onnx --minShapes=x:1x4 --optShapes=x:8x4 --maxShapes=x:16x4",
)
PRECISION_RULE = Rule(
    "T004",
    "engine that answers otherwise than its model",
    "Half precision overflows in norms, softmax and large constants, and INT8 rounds: the engine "
    "runs and its answers are useless. Only a run on sample data shows it; `mmctl export` compares "
    "each precision with the model, and refuses it beyond the stated loss.",
    wrong="trtexec --fp16",
    right="precision: fp16  # in model.yaml, with `verify:`",
)
CPU_INT8_RULE = Rule(
    NOT_FOR_TENSORRT,
    "INT8 for CPUs given to TensorRT",
    "TensorRT takes INT8 that is signed and symmetric, with FP32 biases. What CPUs compute fast is "
    "unsigned, or scaled anew in each request: TensorRT leaves those nodes to other providers, "
    "without an error. `quantize: {tensorrt: true}` writes a file for each.",
    Severity.WARNING,
    wrong="precision: int8\noptimization: {gpu: [{name: tensorrt}]}",
    right="precision: int8\nquantize: {tensorrt: true}\noptimization: {gpu: [{name: tensorrt}]}",
)

ENGINE_RULES: tuple[Rule, ...] = (VERSION_RULE, RANGE_RULE, PRECISION_RULE, CPU_INT8_RULE)


@dataclass(frozen=True, slots=True)
class EngineStamp:
    """What is known of an engine. `batches` are the least and largest size of its profile, None
    without a batch axis; `capability` is "" where nobody said on which GPU it was built.
    """

    tensorrt: Version
    batches: tuple[int, int] | None = None
    capability: str = ""


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """A Triton with GPUs; `tensorrt` is what its owner says it has, `capability` that of its GPU.
    Both are empty where only the release is known.
    """

    name: str
    release: Release
    tensorrt: Version | None = None
    capability: str = ""


def check_engine(
    position: Position, stamp: EngineStamp, target: EngineTarget, max_batch: int
) -> Iterator[Finding]:
    """What stops the engine on this target; a warning where mmctl is not sure."""
    yield from _check_version(position, stamp.tensorrt, target)
    if stamp.batches and not stamp.batches[0] <= 1 <= max_batch <= stamp.batches[1]:
        low, high = stamp.batches
        message = f"the engine takes batches of {low} to {high}, and `max_batch` is {max_batch}"
        hint = "build an engine for 1 to `max_batch` rows, or change `max_batch`"
        yield Finding.at(position, ENGINE_RANGE, message, hint)
    if stamp.capability and target.capability and stamp.capability != target.capability:
        message = (
            f"the engine was built on a GPU of compute capability {stamp.capability}, and that of "
            f"`{target.name}` has {target.capability}"
        )
        yield Finding.at(position, ENGINE_RANGE, message, "build the engine on the GPU it is for")


def warn_of_cpu_int8(position: Position, model: str, filename: str) -> Finding:
    return Finding.at(
        position,
        NOT_FOR_TENSORRT,
        f"`{model}` gives TensorRT {filename}, INT8 as CPUs compute it: TensorRT does not parse "
        "its quantized nodes, and they run elsewhere",
        "write `quantize: {tensorrt: true}`, which makes a file for TensorRT beside it",
        Severity.WARNING,
    )


def _check_version(position: Position, version: Version, target: EngineTarget) -> Iterator[Finding]:
    where = f"`{target.name}` (Triton {target.release})"
    problem = version_problem(version, where, target.release, target.tensorrt)
    if problem is not None:
        message, severity = problem
        hint = (
            "build it with the image of that release, or correct `release` or `tensorrt` of the "
            "target in mmctl.yaml"
        )
        yield Finding.at(position, ENGINE_VERSION, message, hint, severity)


def version_problem(
    version: Version, where: str, release: Release | None, tensorrt: Version | None
) -> tuple[str, Severity] | None:
    """Why a TensorRT does not load an engine of this version, a warning where mmctl is not sure.

    `tensorrt` is what the owner of the server says, which counts more than its release. `where` is
    the server for people.
    """
    if tensorrt is not None:
        verdict: Verdict = "fits" if same_version(version, tensorrt) else "differs"
        has = f"TensorRT {render_version(tensorrt)}"
    elif release is not None:
        verdict, has = fits_release(version, release), tensorrt_in(release)
    else:
        return None
    if verdict == "fits":
        return None
    message = f"the engine was made by TensorRT {render_version(version)}, and {where} has {has}"
    return message, Severity.ERROR if verdict == "differs" else Severity.WARNING
