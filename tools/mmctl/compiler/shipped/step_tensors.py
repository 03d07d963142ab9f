"""What a step returned -> what may leave it: [batch, *dims], text as bytes.

A list tensor is a list over rows of lists of items; only Triton sees it packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped import item_lists
else:
    import item_lists

TEXT = np.dtype(object)
NUMPY = {**item_lists.NUMPY, "string": TEXT, "bytes": TEXT}
NARROWED = {("fp32", np.dtype(np.float64)), ("int32", np.dtype(np.int64))}
"""Numpy's own defaults, which code gives without meaning to: they are cast. Nothing else is."""
SEVERAL = (list, tuple, np.ndarray)


class StepError(Exception):
    """Why a request failed, in words for whoever sent it; `step` says where."""

    step = ""


class Tensor:
    """An input or output as step.json has it."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.word: str = entry["dtype"]
        self.dtype = NUMPY[self.word]
        self.is_text = self.dtype == TEXT
        self.dims: tuple[int, ...] = tuple(entry["dims"])
        self.optional: bool = entry.get("optional", False)
        self.items: bool = entry.get("items", False)
        self.plain = None if self.is_text or self.items else self.dtype
        """An array of exactly this type, and of the declared shape, leaves as it is."""

    @property
    def shown(self) -> str:
        axes = [*(["*"] if self.items else []), *self.dims]
        return f"{self.word}[{', '.join(map(str, axes))}]" if axes else self.word

    def checked(self, value: Any, batch: int) -> Any:
        """What the step returned, in the form in which it may leave. Raises StepError."""
        if self.items:
            return self._checked_lists(value, batch)
        array = self._typed(value)
        wanted = (batch, *self.dims)
        if array.shape != wanted and not item_lists.fits(array.shape, wanted):
            raise StepError(
                f"output `{self.name}` has shape {list(array.shape)}, expected {list(wanted)} "
                f"({self.shown} for a batch of {batch})"
            )
        return array

    def stacked(self, rows: list[Any]) -> Any:
        """What a function returned row by row, as one value. Raises StepError."""
        if self.items:
            return rows
        arrays = [self._array_of(row) for row in rows]
        if len({array.shape for array in arrays}) > 1:
            shapes = ", ".join(str(list(array.shape)) for array in arrays)
            raise StepError(f"output `{self.name}`: its rows differ in shape: {shapes}")
        return np.stack(arrays)

    def sent(self, value: Any, *, batched: bool) -> Any:
        """As config.pbtxt declares it: one value per row has an axis of 1, a list is one value."""
        if self.items:
            rows = [item_lists.pack(items, self.word, self.dims) for items in value]
            value = item_lists.objects(rows, (len(rows), 1))
        elif not self.dims:
            value = value[:, None]
        return np.ascontiguousarray(value if batched else value[0])

    def _array_of(self, value: Any) -> Any:
        """Lists become arrays; text stays objects, for numpy's own text types drop final NULs."""
        try:
            return np.asarray(value, dtype=TEXT if self.is_text else None)
        except ValueError:
            raise StepError(f"output `{self.name}` is ragged: its rows differ in shape") from None

    def _typed(self, value: Any) -> Any:
        array = self._array_of(value)
        if self.is_text:
            return _encoded(array, self)
        return array if array.dtype == self.dtype else _cast(array, self)

    def _checked_lists(self, value: Any, batch: int) -> list[list[Any]]:
        if not isinstance(value, SEVERAL) or len(value) != batch:
            found = f"{len(value)} rows" if isinstance(value, SEVERAL) else type(value).__name__
            raise StepError(
                f"output `{self.name}` is {found}, expected a list of items for each row "
                f"({self.shown} for a batch of {batch})"
            )
        return [self._checked_items(items, row) for row, items in enumerate(value)]

    def _checked_items(self, items: Any, row: int) -> list[Any]:
        if not isinstance(items, SEVERAL):
            found = type(items).__name__
            raise StepError(f"output `{self.name}`: row {row} is {found}, expected a list of items")
        return [self._checked_item(item, row) for item in items]

    def _checked_item(self, item: Any, row: int) -> Any:
        array = np.asarray(self._typed(item), order="C")
        if not item_lists.fits(array.shape, self.dims):
            raise StepError(
                f"output `{self.name}`: an item of row {row} has shape {list(array.shape)}, "
                f"declared {self.shown}"
            )
        return array.item() if self.is_text and not self.dims else array


def _encoded(array: Any, tensor: Tensor) -> Any:
    """Bytes for Triton: `str` of a `string` output, `bytes` of a `bytes` one."""
    items = array.ravel().tolist()
    wanted = str if tensor.word == "string" else bytes
    if not all(isinstance(item, wanted) for item in items):
        stray = next(type(item).__name__ for item in items if not isinstance(item, wanted))
        raise StepError(f"output `{tensor.name}` holds {stray}, declared {tensor.shown}")
    if wanted is bytes:
        return array
    try:
        return np.array([item.encode() for item in items], TEXT).reshape(array.shape)
    except UnicodeEncodeError:
        raise StepError(f"output `{tensor.name}` holds text that UTF-8 cannot write") from None


def _cast(array: Any, tensor: Tensor) -> Any:
    if (tensor.word, array.dtype) not in NARROWED:
        raise StepError(f"output `{tensor.name}` is {array.dtype}, declared {tensor.shown}")
    if array.dtype.kind == "i" and array.size:
        limits = np.iinfo(tensor.dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise StepError(f"output `{tensor.name}` holds values beyond {tensor.word}")
    return array.astype(tensor.dtype)
