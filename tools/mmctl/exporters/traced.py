"""An ONNX graph as it comes from its source, with the source itself to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmctl.exporters.samples import Example
from mmctl.tensors import Array

Runner = Callable[[Mapping[str, Array]], Sequence[Array]]
"""Inputs by name -> outputs in the graph's order. Raises ModelFails."""


class ModelFails(Exception):
    """The model or its source cannot take these inputs; the gates decide what that means."""


@dataclass(frozen=True, slots=True)
class Traced:
    """`graph` is an onnx.ModelProto; `example` and `source` use its own input names.

    `batch_axis` is what the graph calls the batch, where its maker is known to name axes right.
    """

    graph: Any
    source: Runner
    example: Example
    batch_axis: str | None = None
