"""INT4 weights in blocks, activations in FP32: an experiment, for models that memory slows down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmctl.exporters.precision.base import Conversion
from mmctl.exporters.precision.files import finish, scratch
from mmctl.exporters.precision.prepare import (
    check_excluded,
    layers,
    prepared_graph,
    require_some,
)

BLOCK = 32
"""Weights that share a scale."""
INT8_SUMS = 4
"""ONNX Runtime's accuracy level: activations become INT8 inside the kernel, as the CPU's needs."""


@dataclass(frozen=True, slots=True)
class Int4:
    title: str = "INT4 weights (experimental)"
    libraries: tuple[str, ...] = ("onnx", "onnxruntime")
    needs_data: bool = False

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        options = conversion.options
        model = prepared_graph(conversion.source)
        check_excluded(model, options.exclude_nodes)
        require_some(
            layers(model, ("MatMul",)), options.exclude_nodes, "MatMul with constant weights"
        )
        with scratch(conversion.work):
            made = _quantized(conversion, model)
        method = {"block": BLOCK, "excluded": list(options.exclude_nodes)}
        return finish(conversion, made, "int4", method)


def _quantized(conversion: Conversion, model: Any) -> Any:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        model,
        block_size=BLOCK,
        is_symmetric=True,
        accuracy_level=INT8_SUMS,
        nodes_to_exclude=list(conversion.options.exclude_nodes),
    )
    quantizer.process()
    return quantizer.model.model
