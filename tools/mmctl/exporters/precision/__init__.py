"""Conversions of a proven FP32 file: one stage is one file here and one row in STAGES."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mmctl.errors import InputError
from mmctl.exporters.macs import count_macs
from mmctl.exporters.onnx_file import open_session
from mmctl.exporters.precision.base import Batch, Quantize, Stage
from mmctl.exporters.precision.fp16 import Fp16
from mmctl.exporters.precision.int4 import Int4
from mmctl.exporters.precision.int8_dynamic import Int8Dynamic
from mmctl.exporters.precision.int8_static import Int8Static
from mmctl.exporters.precision.int8_tensorrt import Int8Tensorrt
from mmctl.exporters.samples import Drawn, draw_example

STAGES: Mapping[str, Stage] = {
    "fp16": Fp16(),
    "int8-static": Int8Static(),
    "int8-dynamic": Int8Dynamic(),
    "int8-tensorrt": Int8Tensorrt(),
    "int4": Int4(),
}

SERVED = "model.onnx"
FP16_FILE = "model.fp16.onnx"
TENSORRT_FILE = "model.trt.onnx"

Planned = tuple[tuple[str, Stage], ...]


def stages_for(
    precision: str, fp32: Path, options: Quantize, batch: Batch | None = None
) -> Planned:
    """Files of a version to make from the FP32 file, by name; the served one first.

    `batch` is an input to count multiplications with, for `method: auto`; without one it is drawn
    from the signature.
    """
    if precision == "int8":
        served = (SERVED, STAGES[f"int8-{method_for(fp32, options, batch)}"])
        tensorrt = ((TENSORRT_FILE, STAGES["int8-tensorrt"]),) if options.tensorrt else ()
        return (served, *tensorrt)
    return {
        "fp32": (),
        "fp16": ((FP16_FILE, STAGES["fp16"]),),
        "int4": ((SERVED, STAGES["int4"]),),
    }[precision]


def method_for(fp32: Path, options: Quantize, batch: Batch | None = None) -> str:
    """`static` or `dynamic`; auto asks where most of the multiplications are."""
    if options.method != "auto":
        return options.method
    macs = count_macs(fp32, batch or _drawn_batch(fp32))
    if not macs.total:
        raise InputError(
            f"{fp32.name} has no convolution and no matrix product, which INT8 could make faster",
            hint="leave `precision: fp32`",
        )
    return "static" if macs.convolutions > macs.total / 2 else "dynamic"


def _drawn_batch(path: Path) -> Batch:
    inputs = open_session(path).get_inputs()
    batched = not any(isinstance(value.shape[0], int) for value in inputs if value.shape)
    drawn = draw_example(inputs, {value.name: Drawn() for value in inputs}, batched=batched)
    return drawn.rows(1) if batched else drawn.arrays
