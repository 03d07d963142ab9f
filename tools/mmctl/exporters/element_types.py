"""ONNX Runtime's words for element types."""

from __future__ import annotations

from typing import Any

from mmctl.errors import InputError
from mmctl.tensors import DType

TYPES = {
    "tensor(bool)": DType.BOOL,
    "tensor(uint8)": DType.UINT8,
    "tensor(uint16)": DType.UINT16,
    "tensor(uint32)": DType.UINT32,
    "tensor(uint64)": DType.UINT64,
    "tensor(int8)": DType.INT8,
    "tensor(int16)": DType.INT16,
    "tensor(int32)": DType.INT32,
    "tensor(int64)": DType.INT64,
    "tensor(float16)": DType.FP16,
    "tensor(float)": DType.FP32,
    "tensor(double)": DType.FP64,
    "tensor(string)": DType.STRING,
}
"""What Triton's ONNX Runtime backend serves: no sequences, maps, bf16 or fp8."""


def dtype_of_onnx(tensor: Any) -> DType:
    """The type of a session's input or output. Raises InputError for what Triton cannot serve."""
    try:
        return TYPES[tensor.type]
    except KeyError:
        raise InputError(
            f"`{tensor.name}` is a {tensor.type}, which Triton's ONNX Runtime backend does not "
            "serve",
            hint="export the model with plain tensors (for scikit-learn: `zipmap=False`)",
        ) from None
