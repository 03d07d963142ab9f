"""INT8 for ONNX Runtime on CPUs, for graphs that mostly convolve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmctl.exporters.precision.base import Conversion
from mmctl.exporters.precision.cpu import has_vnni
from mmctl.exporters.precision.files import finish
from mmctl.exporters.precision.static import checked_graph, method_of, quantized


@dataclass(frozen=True, slots=True)
class Int8Static:
    """Unsigned activations, signed weights: the pair that ONNX Runtime has fast kernels for."""

    title: str = "INT8, static"
    libraries: tuple[str, ...] = ("onnx", "onnxruntime")
    needs_data: bool = True

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        from onnxruntime.quantization import QuantType

        model = checked_graph(conversion)
        settings = {"activation_type": QuantType.QUInt8}
        made, excluded = quantized(conversion, model, settings, keep_ends=True)
        method = method_of(conversion, excluded)
        return {**finish(conversion, made, "int8-static", method), "vnni": has_vnni()}
