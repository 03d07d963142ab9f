"""Calibration data: checked before minutes are spent on it, and in the shape a method needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.exporters.graph import real_inputs
from mmctl.exporters.precision.base import Batch
from mmctl.tensors import Array

HINT = "let `verify.calibration` yield 64 or more different samples like those it will serve"


class Reader:
    """What ONNX Runtime's calibrators read: one batch after the other, as often as they like."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self.rewind()

    def rewind(self) -> None:
        self._rest: Iterator[Batch] = iter(self._batches)

    def get_next(self) -> Mapping[str, Array] | None:
        batch = next(self._rest, None)
        return None if batch is None else dict(batch)


def require_data(batches: Sequence[Batch]) -> None:
    if not any(array.size for batch in batches for array in batch.values()):
        raise InputError("calibration data is missing: this conversion measures ranges", hint=HINT)


def check_data(model: Any, batches: Sequence[Batch], role: str = "calibration") -> None:
    """Raises InputError unless every batch has the inputs of the graph, in their types and shapes.

    Refuses data that holds one sample only, however often.
    """
    inputs = {value.name: value for value in real_inputs(model)}
    for index, batch in enumerate(batches):
        where = f"{role} batch {index}"
        _check_names(where, batch, inputs)
        for name, array in batch.items():
            _check_array(f"{where}: `{name}`", array, inputs[name])
    if batches and _all_equal(batches):
        raise InputError(f"{role} data holds one sample over and over", hint=HINT)


def _check_names(where: str, batch: Batch, inputs: Mapping[str, Any]) -> None:
    if unknown := sorted(batch.keys() - inputs.keys()):
        raise InputError(
            f"{where}: the model has no input `{unknown[0]}`", hint=nearest(unknown[0], inputs)
        )
    if missing := sorted(inputs.keys() - batch.keys()):
        raise InputError(f"{where}: input `{missing[0]}` is missing")


def _check_array(where: str, array: Array, value: Any) -> None:
    import onnx

    tensor = value.type.tensor_type
    wanted = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if array.dtype.kind not in "OSU" and array.dtype != wanted:
        raise InputError(f"{where} is {array.dtype}, the model takes {wanted}")
    dims = [dim.dim_value or -1 for dim in tensor.shape.dim]
    fits = len(dims) == array.ndim and all(
        dim in (-1, size) for dim, size in zip(dims, array.shape, strict=True)
    )
    if not fits:
        raise InputError(f"{where} has shape {list(array.shape)}, the model takes {dims}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{where} holds NaN or infinity")


def _all_equal(batches: Sequence[Batch]) -> bool:
    first = {name: array[:1] for name, array in batches[0].items() if array.ndim}
    return all(
        array.shape[1:] == first[name].shape[1:] and bool((array == first[name]).all())
        for batch in batches
        for name, array in batch.items()
        if name in first
    )


def of_one_shape(batches: Sequence[Batch]) -> list[Batch]:
    """Batches padded to one shape: with their own rows in front, with zeros along other axes.

    Zero is the padding of token ids and masks.
    """
    sizes = {
        name: tuple(np.max([batch[name].shape for batch in batches], axis=0)) for name in batches[0]
    }
    return [
        {name: _padded(array, sizes[name]) for name, array in batch.items()} for batch in batches
    ]


def _padded(array: Array, shape: tuple[int, ...]) -> Array:
    if not array.ndim:
        return array
    rows = array[np.arange(shape[0]) % len(array)]
    return np.pad(rows, [(0, size - old) for size, old in zip(shape, rows.shape, strict=True)])
