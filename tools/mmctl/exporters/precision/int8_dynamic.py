"""INT8 without data: weights ahead of time, activations anew in every request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmctl.exporters.onnx_file import load_graph
from mmctl.exporters.precision.base import Conversion
from mmctl.exporters.precision.cpu import has_vnni
from mmctl.exporters.precision.files import finish, save, scratch
from mmctl.exporters.precision.prepare import (
    PRODUCTS,
    check_excluded,
    layers,
    prepared_graph,
    require_some,
)

LOOKUPS = ("Gather", "EmbedLayerNormalization")
OPERATORS = (*PRODUCTS, "Attention", "LSTM", *LOOKUPS)
"""Convolutions stay FP32: ONNX Runtime's ConvInteger takes four times as long as Conv.

Embedding tables are included. In MiniLM they are half of the bytes (size 0.25 of FP32 with them,
0.65 without), and accuracy on intents is the same within its interval.
"""


@dataclass(frozen=True, slots=True)
class Int8Dynamic:
    title: str = "INT8, dynamic"
    libraries: tuple[str, ...] = ("onnx", "onnxruntime")
    needs_data: bool = False

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        options = conversion.options
        model = prepared_graph(conversion.source)
        check_excluded(model, options.exclude_nodes)
        found = layers(model, (*PRODUCTS, "Attention", "LSTM"))
        require_some(found, options.exclude_nodes, "MatMul, Gemm or LSTM with constant weights")
        with scratch(conversion.work):
            made = _quantized(conversion, model)
        method = {
            "per_channel": options.per_channel,
            "reduce_range": options.reduce_range,
            "operators": list(OPERATORS),
            "excluded": list(options.exclude_nodes),
        }
        return {**finish(conversion, made, "int8-dynamic", method), "vnni": has_vnni()}


def _quantized(conversion: Conversion, model: Any) -> Any:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    prepared, quantized = conversion.work / "prepared.onnx", conversion.work / "quantized.onnx"
    save(model, prepared, conversion.inline_bytes)
    quantize_dynamic(
        prepared,
        quantized,
        op_types_to_quantize=list(OPERATORS),
        per_channel=conversion.options.per_channel,
        reduce_range=conversion.options.reduce_range,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=list(conversion.options.exclude_nodes),
        use_external_data_format=model.ByteSize() > conversion.inline_bytes,
    )
    return load_graph(quantized)
