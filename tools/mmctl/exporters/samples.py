"""Inputs to try a model with: drawn from its signature, or made of the user's own examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmctl.documents import Entry
from mmctl.errors import InputError
from mmctl.exporters.element_types import dtype_of_onnx
from mmctl.tensors import Array, DType
from mmctl.triton.options import Count

SEED = 20240607
ROWS = 3
FREE_AXIS = 16
"""How long a free axis is when nobody says."""
UNNAMED = "free"


class Drawn(Entry):
    """How to draw an input: `shape` without the batch axis, numbers from `low` up to `high`.

    Without `high`: normally distributed floats, bytes 0 to 255, integers 0 and 1, which are valid
    as token ids, as a mask and as a class.
    """

    shape: tuple[Count, ...] | None = None
    low: float = 0
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """Arrays by input name. `axes` names the free axes of each by index, the batch axis left out;
    axes of one name have one length. With a batch axis there are at least two rows.
    """

    arrays: Mapping[str, Array]
    axes: Mapping[str, Mapping[int, str]]

    def rows(self, count: int) -> dict[str, Array]:
        """A batch of `count` rows; rows repeat in turn when there are fewer."""
        return {
            name: array[[row % len(array) for row in range(count)]]
            for name, array in self.arrays.items()
        }

    def resized(self, factor: float) -> Example | None:
        """With every free axis longer or shorter; None when that changes nothing.

        Shortening cuts and lengthening repeats, so that values stay as valid as they were.
        """
        arrays = {
            name: _resized(array, self.axes.get(name, {}), factor)
            for name, array in self.arrays.items()
        }
        if all(arrays[name].shape == self.arrays[name].shape for name in arrays):
            return None
        return Example(arrays, self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each free axis, by its name."""
        return {
            label: self.arrays[name].shape[axis]
            for name, axes in self.axes.items()
            for axis, label in axes.items()
        }

    @property
    def rows_differ(self) -> bool:
        """Equal rows would prove nothing about what rows do to each other."""
        return any(
            not np.array_equal(array[0], row) for array in self.arrays.values() for row in array
        )


def _resized(array: Array, axes: Iterable[int], factor: float) -> Array:
    for axis in axes:
        length = array.shape[axis]
        index = np.arange(max(1, round(length * factor))) % length
        array = np.take(array, index, axis=axis)
    return array


def draw_example(
    inputs: Sequence[Any], drawn: Mapping[str, Drawn], *, batched: bool, rows: int = ROWS
) -> Example:
    """Seeded inputs for a session's inputs; `drawn` has an entry for each."""
    random = np.random.default_rng(SEED)
    arrays: dict[str, Array] = {}
    axes: dict[str, dict[int, str]] = {}
    for tensor in inputs:
        lead = 1 if batched and tensor.shape else 0
        shape = _shape_of(tensor.name, tensor.shape[lead:], drawn[tensor.name].shape)
        full = (rows, *shape) if lead else shape
        arrays[tensor.name] = _draw(random, dtype_of_onnx(tensor), full, drawn[tensor.name])
        axes[tensor.name] = {
            index + lead: _label(dim)
            for index, dim in enumerate(tensor.shape[lead:])
            if _is_free(dim)
        }
    return Example(arrays, axes)


def _shape_of(
    name: str, dims: Sequence[int | str | None], wanted: tuple[int, ...] | None
) -> tuple[int, ...]:
    shape = wanted or tuple(FREE_AXIS if _is_free(dim) else int(str(dim)) for dim in dims)
    fits = len(shape) == len(dims) and all(
        _is_free(dim) or dim == size for dim, size in zip(dims, shape, strict=True)
    )
    if not fits:
        shown = ", ".join(str(dim) if isinstance(dim, int) else "-1" for dim in dims)
        raise InputError(
            f"`examples`: shape {list(shape)} does not fit input `{name}`, which is [{shown}] "
            "without the batch axis"
        )
    return shape


def _is_free(dim: int | str | None) -> bool:
    return not isinstance(dim, int) or dim < 0


def _label(dim: int | str | None) -> str:
    return dim if isinstance(dim, str) else UNNAMED


def _draw(random: np.random.Generator, dtype: DType, shape: tuple[int, ...], drawn: Drawn) -> Array:
    if dtype.is_text:
        words = np.array(["alpha", "beta", "gamma delta", ""], dtype=object)
        return random.choice(words, size=shape)
    if dtype is DType.BOOL:
        return random.random(shape) < 0.5
    if dtype.numpy.kind == "f":
        if drawn.high is None:
            return random.standard_normal(shape).astype(dtype.numpy)
        return random.uniform(drawn.low, drawn.high, shape).astype(dtype.numpy)
    high = drawn.high if drawn.high is not None else (256 if dtype is DType.UINT8 else 2)
    return random.integers(int(drawn.low), int(high), shape).astype(dtype.numpy)
