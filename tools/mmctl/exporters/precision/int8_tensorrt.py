"""INT8 as TensorRT parses it. Not faster than FP32 in ONNX Runtime on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmctl.exporters.precision.base import Conversion
from mmctl.exporters.precision.files import finish
from mmctl.exporters.precision.static import checked_graph, method_of, quantized

OPERATORS = ("Conv", "Gemm", "MatMul", "Add", "AveragePool", "GlobalAveragePool", "MaxPool")
"""What TensorRT has INT8 kernels for."""


@dataclass(frozen=True, slots=True)
class Int8Tensorrt:
    """Signed and symmetric; biases stay FP32, for TensorRT's parser refuses INT32 constants.

    Inputs of layers are quantized, and no outputs: a layer and the activation behind it become one
    in TensorRT, and before ReLU6 a range may be ten times as wide as behind it.
    """

    title: str = "INT8 for TensorRT"
    libraries: tuple[str, ...] = ("onnx", "onnxruntime")
    needs_data: bool = True

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        from onnxruntime.quantization import QuantType

        model = checked_graph(conversion)
        settings = {
            "activation_type": QuantType.QInt8,
            "op_types_to_quantize": list(OPERATORS),
            "extra_options": {
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
                "DedicatedQDQPair": True,
                "OpTypesToExcludeOutputQuantization": list(OPERATORS),
            },
        }
        made, excluded = quantized(conversion, model, settings, keep_ends=False)
        return finish(conversion, made, "int8-tensorrt", method_of(conversion, excluded))
