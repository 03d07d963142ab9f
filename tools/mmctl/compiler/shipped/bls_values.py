"""Values of a request: tensors, lists of items, which rows have one.

Part of the runner of the bls form (model.py). All arrays have a batch axis. A list tensor comes
from a step as one packed value per row, and is unpacked only for `foreach`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped import item_lists
    from mmctl.compiler.shipped.bls_calls import NodeError
else:
    import item_lists
    from bls_calls import NodeError

NUMPY = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}
TEXT = ("string", "bytes")
OBJECT = np.dtype(object)

Arrays = dict[str, Any]


class Held:
    """A tensor as Triton gave it: read as an array only when somebody looks inside."""

    __slots__ = ("_array", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self._array: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape())

    @property
    def dtype(self) -> Any:
        return self.array().dtype

    def array(self) -> Any:
        if self._array is None:
            self._array = self.tensor.as_numpy()
        return self._array


class Lists:
    """A list tensor that is unpacked: the items of each row."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[list[Any]]) -> None:
        self.rows = rows


def array_of(value: Any) -> Any:
    return value.array() if isinstance(value, Held) else value


def objects(items: Sequence[Any]) -> Any:
    """[count, 1] of objects, whatever they are."""
    array = np.empty((len(items), 1), object)
    array[:, 0] = items
    return array


class Tensor:
    """A tensor as plan.json has it: of one row, or of one item where `items` is set."""

    __slots__ = ("_default", "dims", "is_text", "items", "name", "numpy", "word")

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.word: str = entry["dtype"]
        self.dims: tuple[int, ...] = tuple(entry["dims"])
        self.items: bool = entry.get("items", False)
        self.is_text = self.word in TEXT
        self.numpy = OBJECT if self.is_text else np.dtype(NUMPY.get(self.word, self.word))
        self._default: Any = entry.get("default")

    def lists(self, value: Any) -> list[list[Any]]:
        """A list tensor's items by row; text without dims is bytes, all else are arrays."""
        if isinstance(value, Lists):
            return value.rows
        return [item_lists.unpack(row, self.word, self.dims) for row in array_of(value).ravel()]

    def plain(self, value: Any) -> Any:
        """Lists of a list tensor, else an array."""
        return Lists(self.lists(value)) if self.items else array_of(value)

    def packed(self, value: Any) -> Any:
        """A list tensor as one value per row, [batch, 1]."""
        if not isinstance(value, Lists):
            return value
        return objects([item_lists.pack(row, self.word, self.dims) for row in value.rows])

    def nothing(self) -> Any:
        """The value of no rows."""
        if self.items:
            return Lists([])
        return np.empty((0, *(max(dim, 0) for dim in self.dims or (1,))), self.numpy)

    def defaults(self, count: int, like: tuple[int, ...] | None = None) -> Any:
        """What `on_error` declares, for `count` rows. Free axes are as in `like`, else 1."""
        if self.items:
            given = self._default if isinstance(self._default, list) else [self._default]
            return Lists([[self._filled(item, None) for item in given]] * count)
        return np.repeat(self._filled(self._default, like)[None], count, axis=0)

    def _filled(self, value: Any, like: tuple[int, ...] | None) -> Any:
        """One element fills the shape of a row or item; a list has that shape itself."""
        if self.is_text:
            value = _encoded(value)
            if self.items and not self.dims:
                return value
        if isinstance(value, list):
            array = np.array(value, self.numpy)
            return array.reshape(*array.shape, *(abs(dim) for dim in self.dims[array.ndim :]))
        dims = self.dims if self.items else self.dims or (1,)
        return np.full(like or tuple(abs(dim) for dim in dims), value, self.numpy)


def _encoded(value: Any) -> Any:
    return [_encoded(v) for v in value] if isinstance(value, list) else str(value).encode()


class Result:
    """What a node left. `rows` have a value, in order (None: all); `arrays` are over these rows.

    `failed` are rows without a value because of `error` (None: there are none). All other rows
    are absent.
    """

    __slots__ = ("arrays", "error", "failed", "is_whole", "rows")

    def __init__(
        self, arrays: Arrays, rows: Any = None, failed: Any = None, error: NodeError | None = None
    ) -> None:
        self.arrays, self.rows, self.failed, self.error = arrays, rows, failed, error
        self.is_whole = rows is None and failed is None

    def has(self, batch: int) -> Any:
        """Which rows have a value."""
        return np.ones(batch, bool) if self.rows is None else mask_of(self.rows, batch)

    def at(self, tensor: str, rows: Any) -> Any:
        """A tensor at `rows`, which all have a value; None stands for all rows."""
        value = self.arrays[tensor]
        if rows is None or (self.rows is not None and len(rows) == len(self.rows)):
            return value
        return taken(value, rows if self.rows is None else np.searchsorted(self.rows, rows))


def mask_of(rows: Any, batch: int) -> Any:
    mask = np.zeros(batch, bool)
    mask[rows] = True
    return mask


def taken(value: Any, places: Any) -> Any:
    if isinstance(value, Lists):
        return Lists([value.rows[place] for place in places])
    return array_of(value)[places]


def merged(pieces: Sequence[tuple[Any, Any]]) -> Any:
    """One value over the rows of all `pieces`, (rows, value) each, in the order of rows.

    Raises NodeError when rows differ in shape.
    """
    order = np.argsort(np.concatenate([rows for rows, _ in pieces]), kind="stable")
    values = [value for _, value in pieces]
    if isinstance(values[0], Lists):
        lists = [row for value in values for row in value.rows]
        return Lists([lists[place] for place in order])
    arrays = [array_of(value) for value in values]
    if len({array.shape[1:] for array in arrays}) > 1:
        shapes = ", ".join(str(list(array.shape[1:])) for array in arrays)
        raise NodeError(f"its rows differ in shape: {shapes}")
    return np.concatenate(arrays)[order]
