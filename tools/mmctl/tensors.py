"""The vocabulary of shapes and element types that all rooms share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from mmctl.errors import InputError

Array = npt.NDArray[np.generic]


class DType(StrEnum):
    """Element types as a pipeline writes them. Triton knows one type for `string` and `bytes`."""

    BOOL = "bool"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FP16 = "fp16"
    FP32 = "fp32"
    FP64 = "fp64"
    BF16 = "bf16"
    STRING = "string"
    BYTES = "bytes"

    @property
    def triton(self) -> str:
        """The word of config.pbtxt, e.g. `TYPE_FP32`."""
        return "TYPE_STRING" if self.is_text else f"TYPE_{self.name}"

    @property
    def wire(self) -> str:
        """The word of the inference protocol, e.g. `FP32`, `BYTES`."""
        return "BYTES" if self.is_text else self.name

    @property
    def is_text(self) -> bool:
        return self in (DType.STRING, DType.BYTES)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy type; `string` and `bytes` are arrays of objects.

        Raises InputError for bf16, which numpy does not have.
        """
        return _numpy_of(self)

    def feeds(self, other: DType) -> bool:
        """Whether a tensor of this type may flow into one of type `other`: Triton never casts."""
        return self is other or (self.is_text and other.is_text)


_NUMPY_NAMES = {DType.FP16: "float16", DType.FP32: "float32", DType.FP64: "float64"}


@cache
def _numpy_of(dtype: DType) -> np.dtype[np.generic]:
    if dtype.is_text:
        return np.dtype(object)
    if dtype is DType.BF16:
        raise InputError("numpy has no bf16", hint="declare the tensor fp32 and cast in the model")
    return np.dtype(_NUMPY_NAMES.get(dtype, dtype.value))


@cache
def dtype_of(array_type: np.dtype[np.generic]) -> DType:
    """The DType of a numpy type; objects, str and bytes arrays are `string`."""
    if array_type.kind in "OSU":
        return DType.STRING
    for dtype in DType:
        if dtype not in (DType.BF16, DType.STRING, DType.BYTES) and dtype.numpy == array_type:
            return dtype
    raise InputError(f"no tensor type for numpy's `{array_type}`")


def dtype_from_triton(word: str) -> DType:
    """The DType for `TYPE_FP32`, `FP32` or `BYTES`."""
    name = word.removeprefix("TYPE_")
    return DType.STRING if name in ("STRING", "BYTES") else DType[name]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape without the batch axis; -1 is a free axis.

    `dims` () is written as a bare dtype: one value per row. Triton sees `dims: [1]`; a step
    sees shape [batch]. `items` marks a list tensor, `"uint8[*,48,-1,3]"`: a varying number of
    items per row, in front of `dims`.
    """

    dtype: DType
    dims: tuple[int, ...] = ()
    items: bool = False

    @property
    def triton_dims(self) -> tuple[int, ...]:
        return self.dims or (1,)

    def feeds(self, other: TensorType) -> bool:
        """Whether a tensor of this type may flow into one of type `other`."""
        mine, theirs = self.triton_dims, other.triton_dims
        return (
            self.dtype.feeds(other.dtype)
            and self.items == other.items
            and len(mine) == len(theirs)
            and all(a == b or -1 in (a, b) for a, b in zip(mine, theirs, strict=True))
        )

    def __str__(self) -> str:
        axes = ["*"] if self.items else []
        axes += [str(dim) for dim in self.dims]
        return f"{self.dtype}[{','.join(axes)}]" if axes else str(self.dtype)


_TYPE = re.compile(r"\s*([a-z0-9]+)\s*(?:\[([^\]]*)\])?\s*")


def parse_type(text: str) -> TensorType:
    """`fp32`, `"fp32[384]"`, `"uint8[*,48,-1,3]"` -> TensorType. Raises ValueError, with why."""
    match = _TYPE.fullmatch(text)
    if match is None or match[1] not in set(DType):
        raise ValueError(
            f"`{text}` is not a tensor type; write one of {', '.join(DType)}, "
            'with the shape in brackets: "fp32[384]"'
        )
    axes = [axis.strip() for axis in match[2].split(",")] if match[2] is not None else []
    items = axes[:1] == ["*"]
    dims = tuple(_parse_axis(axis, text) for axis in axes[items:])
    return TensorType(DType(match[1]), dims, items)


def _parse_axis(axis: str, text: str) -> int:
    if axis == "*":
        raise ValueError(f"`{text}`: `*` may only stand first")
    if not re.fullmatch(r"-1|[1-9][0-9]*", axis):
        raise ValueError(f"`{text}`: an axis is a number of at least 1, or -1 for a free one")
    return int(axis)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A named tensor of a model or pipeline."""

    name: str
    type: TensorType
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives; `max_batch` 0 means that tensors carry no batch axis."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0

    def input(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.inputs if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.outputs if spec.name == name), None)
