"""Whether a TensorRT engine runs where it is sent: rules T001 and T002. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mmctl.diagnostics import Finding, Position, Severity
from mmctl.pipeline import Rule
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

ENGINE_RULES: tuple[Rule, ...] = (
    Rule(
        ENGINE_VERSION,
        "engine of another TensorRT",
        "TensorRT loads an engine only in the very version that made it. Build the engine with the "
        "image of the release that serves it: `mmctl engine MODEL`.",
    ),
    Rule(
        ENGINE_RANGE,
        "engine for other sizes or another GPU",
        "An engine runs for the batch sizes of its optimisation profile, which must cover 1 to "
        "max_batch_size, and on GPUs of the architecture that it was built on.",
    ),
)


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


def _check_version(position: Position, version: Version, target: EngineTarget) -> Iterator[Finding]:
    verdict = _verdict(version, target)
    if verdict == "fits":
        return
    has = f"TensorRT {render_version(target.tensorrt)}" if target.tensorrt else ""
    where = f"`{target.name}` (Triton {target.release})"
    yield Finding.at(
        position,
        ENGINE_VERSION,
        f"the engine was made by TensorRT {render_version(version)}, and {where} has "
        f"{has or tensorrt_in(target.release)}",
        "build it with the image of that release, or correct `release` or `tensorrt` of the target "
        "in mmctl.yaml",
        Severity.ERROR if verdict == "differs" else Severity.WARNING,
    )


def _verdict(version: Version, target: EngineTarget) -> Verdict:
    if target.tensorrt is None:
        return fits_release(version, target.release)
    return "fits" if same_version(version, target.tensorrt) else "differs"
