"""What the GPU profile says to ONNX Runtime, TensorRT's provider above all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mmctl.errors import InputError
from mmctl.tensors import Signature
from mmctl.triton.config import Accelerator
from mmctl.triton.options import AcceleratorEntry, ServingOptions, WarmupEntry
from mmctl.triton.profiles import EDGES, profiles_for, shape_argument
from mmctl.triton.releases import Release, has_precision_flags

PRECISION = "precision_mode"
FP32_FILE = "model.onnx"

ENGINE_CACHE = "/tmp/mmctl-engines"
"""Where the server keeps the engines of ONNX Runtime's TensorRT provider unless told otherwise: a
path that exists in every container; mount a volume there to keep them over a restart.
"""


def gpu_accelerators(
    name: str,
    signature: Signature,
    filename: str,
    options: ServingOptions,
    releases: Sequence[Release],
) -> tuple[Accelerator, ...]:
    """What the user wrote; TensorRT with an engine cache and one profile, so that no request makes
    an engine anew.

    Raises InputError for a `precision_mode` that does nothing to the file or in a release, and for
    inputs that no profile covers.
    """
    return tuple(
        _tensorrt(name, signature, filename, entry, options, releases)
        if entry.name == "tensorrt"
        else Accelerator(entry.name, entry.parameters)
        for entry in _entries(options)
    )


def engine_warmup(options: ServingOptions) -> WarmupEntry | None:
    """One request of the usual shape: loading waits for the engine then, not the first user.

    None where the user warms up anyway, or nothing makes engines.
    """
    if options.warmup or not any(entry.name == "tensorrt" for entry in _entries(options)):
        return None
    return WarmupEntry(dims={name: shape.opt for name, shape in options.shapes.items()})


def _entries(options: ServingOptions) -> tuple[AcceleratorEntry, ...]:
    return options.optimization.gpu if options.optimization else ()


def _tensorrt(
    name: str,
    signature: Signature,
    filename: str,
    entry: AcceleratorEntry,
    options: ServingOptions,
    releases: Sequence[Release],
) -> Accelerator:
    if PRECISION in entry.parameters:
        _check_precision(name, filename, releases)
    profiles = profiles_for(signature, options.batching, options.shapes)
    shapes = {f"trt_profile_{edge}_shapes": shape_argument(profiles, edge) for edge in EDGES}
    cache = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": f"{ENGINE_CACHE}/{name}"}
    return Accelerator(entry.name, {**cache, **(shapes if profiles else {}), **entry.parameters})


def _check_precision(name: str, filename: str, releases: Sequence[Release]) -> None:
    """A FP32 file and a TensorRT before 11 are what makes the flag do anything."""
    where = f"{name}: `{PRECISION}` does nothing"
    hint = "remove it and write `precision: fp16`: an engine has the precision of its file"
    if filename != FP32_FILE:
        raise InputError(f"{where} to {filename}, which has its own precision", hint=hint)
    for release in releases:
        if not has_precision_flags(release):
            raise InputError(f"{where} in Triton {release}, which has TensorRT 11", hint=hint)
