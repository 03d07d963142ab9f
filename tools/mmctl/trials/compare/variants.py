"""Which variants of a model there are to compare, and from which FP32 file."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import InputError, missing_extra
from mmctl.exporters.accuracy.options import Precision
from mmctl.exporters.base import Task
from mmctl.exporters.keys import build_key
from mmctl.exporters.precision import SERVED, STAGES, stages_for
from mmctl.exporters.precision.base import Batch, Quantize, Stage
from mmctl.exporters.sources import SOURCES
from mmctl.exporters.spec import Model, read_model
from mmctl.trials.compare.table import Device
from mmctl.triton.generate import ONNX
from mmctl.triton.repository import read_build_key, read_lock
from mmctl.workspace import Workspace

NEEDS = ("onnx", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A variant to make out of the FP32 file."""

    name: str
    precision: Precision
    stage: Stage
    experimental: bool = False
    device: Device = "cpu"

    @property
    def title(self) -> str:
        if self.device == "cpu":
            return self.stage.title
        return f"{self.precision.upper()}, TensorRT engine"


def read_onnx_model(workspace: Workspace, name: str) -> Model:
    """Raises InputError for a model that has no ONNX file, or when libraries are missing."""
    model = read_model(workspace, name)
    source = model.file.source
    if source.backend != ONNX:
        kind = next(kind for kind, known in SOURCES.items() if type(source) is known)
        raise InputError(
            f"{model.place.shown}: a {kind} source has no file to convert",
            hint="compare models that are exported to ONNX",
        )
    for package in NEEDS:
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise missing_extra("comparing precisions", "export") from None
    return model


def wanted_variants(
    fp32: Path, options: Quantize, batch: Batch, *, every: bool
) -> Sequence[Wanted]:
    """All but FP32 itself. `batch` is an input to count multiplications with."""
    half = Wanted("fp16", "fp16", STAGES["fp16"])
    if not every:
        ((_file, stage), *_) = stages_for("int8", fp32, options, batch)
        return [half, Wanted("int8", "int8", stage)]
    return [
        half,
        Wanted("int8-static", "int8", STAGES["int8-static"]),
        Wanted("int8-dynamic", "int8", STAGES["int8-dynamic"]),
        Wanted("int4", "int4", STAGES["int4"], experimental=True),
    ]


def engines() -> Sequence[Wanted]:
    """Where a GPU is."""
    return [
        Wanted("fp16-engine", "fp16", STAGES["fp16"], device="tensorrt"),
        Wanted("int8-engine", "int8", STAGES["int8-tensorrt"], device="tensorrt"),
    ]


def fp32_file(model: Model, located: Path, out: Path) -> Path:
    """The proven FP32 file: that of the locked version, or one exported into the folder `out`."""
    lock = read_lock(model.place.folder)
    if lock is not None and lock.precision in ("fp32", "fp16"):
        version = model.place.folder / str(lock.version)
        if read_build_key(version) == lock.build_key == build_key(model.place.workspace, model):
            return version / SERVED
    out.mkdir()
    file = model.file
    file.source.export(
        Task(
            place=model.place,
            located=located,
            out=out,
            batched=file.batched,
            rename=file.rename,
            tolerance=file.verify.tolerance,
            declared=file.declared,
        )
    )
    return out / SERVED


def file_bytes(path: Path) -> int:
    """With the weights that lie beside it."""
    beside = path.with_name(f"{path.name}.data")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
