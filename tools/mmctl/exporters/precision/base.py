"""What a conversion is: a FP32 ONNX file in, a file of another precision out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from mmctl.documents import Entry, Flag
from mmctl.exporters.onnx_file import MAX_BYTES
from mmctl.tensors import Array

Batch = Mapping[str, Array]
"""Inputs of the model by name, with batch axis where the model has one."""


class Quantize(Entry):
    """`quantize:` in model.yaml. `method` auto: static where most multiplications are in
    convolutions, dynamic where they are in matrix products.
    """

    method: Literal["auto", "static", "dynamic"] = "auto"
    calibrate: Literal["minmax", "entropy", "percentile", "distribution"] = "minmax"
    per_channel: Flag = True
    reduce_range: Flag = False
    """7-bit weights, for servers whose CPUs lack VNNI: there, sums of 8-bit products saturate."""
    exclude_nodes: tuple[str, ...] = ()
    """Nodes that stay FP32, by name. Static quantization for CPUs leaves out the first layers too,
    and the last one where it is small.
    """
    tensorrt: Flag = False
    """Write `model.trt.onnx` too: symmetric INT8 as TensorRT parses it."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """`source` is the proven FP32 file, `target` the file to write; `work` is an empty folder for
    scratch files; paths are absolute. `calibration` are batches of one shape each, empty where a
    stage needs none. A file above `inline_bytes` keeps its weights in `<target>.data` beside it.
    """

    source: Path
    target: Path
    work: Path
    calibration: Sequence[Batch] = ()
    options: Quantize = field(default_factory=Quantize)
    inline_bytes: int = MAX_BYTES


class Stage(Protocol):
    """One way to convert: a file here and a row in STAGES."""

    @property
    def title(self) -> str:
        """For people: "INT8, dynamic"."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Rows of `keys.LIBRARIES` that shape the file."""

    @property
    def needs_data(self) -> bool: ...

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        """Write the target; returns what was done, as JSON, for the lock.

        The signature stays the same. Raises InputError for what it cannot convert.
        """
