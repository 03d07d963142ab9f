"""User values -> arrays as a model takes them: casts what is safe, refuses what would lose. Pure.

A whole number becomes a float where that is exact, a float becomes a whole number where it is
one, any float becomes a narrower float unless it overflows. Nothing wraps, text is never read as
a number, and a missing batch axis is added.
"""

from __future__ import annotations

import math

import numpy as np

from mmctl.errors import InputError
from mmctl.tensors import Array, DType, TensorSpec

_OBJECTS = np.dtype(object)


def to_array(value: object, spec: TensorSpec, where: str) -> Array:
    """An array of the tensor's type in the shape of `value`: an array, a scalar or nested lists.

    Messages begin with `where`. Texts come out as str for `string`, as bytes for `bytes`.
    """
    if isinstance(value, np.ndarray) and value.dtype == spec.type.dtype.numpy != _OBJECTS:
        return value  # nearly always
    if spec.type.dtype.is_text:
        return _texts(value, spec.type.dtype, where)
    return _cast(_numbers(value, spec.type.dtype, where), spec.type.dtype, where)


def with_batch(array: Array, spec: TensorSpec, max_batch: int, where: str) -> Array:
    """The array in the shape that Triton wants, [rows, *dims] where the model batches.

    A missing batch axis is one row; for a bare dtype, [n] is n rows.
    """
    dims, bare = spec.type.triton_dims, not spec.type.dims
    wanted = (-1, *dims) if max_batch else dims
    given = array.shape
    if bare and array.ndim < len(wanted):
        array = array.reshape((-1, 1) if max_batch else 1) if array.size else array
    elif max_batch and array.ndim == len(dims):
        array = array[np.newaxis]
    if not _fits(array.shape, wanted):
        raise _wrong_shape(given, spec, max_batch, where)
    return array


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        want in (-1, axis) for axis, want in zip(shape, wanted, strict=True)
    )


def _wrong_shape(
    shape: tuple[int, ...], spec: TensorSpec, max_batch: int, where: str
) -> InputError:
    row = _shown(spec.type.triton_dims)
    if not max_batch:
        return InputError(
            f"{where}: shape {_shown(shape)} given, {row} expected",
            hint="leave the batch axis out: the model takes no batches",
        )
    rows = _shown(("rows", *spec.type.triton_dims))
    return InputError(
        f"{where}: shape {_shown(shape)} given, {rows} expected",
        hint=f"give one row as {row}, or several with the rows as the first axis",
    )


def _shown(axes: tuple[int | str, ...]) -> str:
    return f"[{','.join(str(axis) for axis in axes)}]"


def _texts(value: object, dtype: DType, where: str) -> Array:
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    array = value if isinstance(value, np.ndarray) else _nested(value, where)
    texts = np.empty(array.size, dtype=object)
    texts[:] = [_text(item, dtype, where) for item in array.ravel().tolist()]
    return texts.reshape(array.shape)


def _nested(value: object, where: str) -> Array:
    """Nested lists as an array of Python objects, nothing converted."""
    try:
        return np.array(value, dtype=object)
    except ValueError as error:
        raise _ragged(where) from error


def _text(item: object, dtype: DType, where: str) -> str | bytes:
    match item:
        case str():
            try:
                raw = item.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{where}: {_quoted(item)} is not valid Unicode", hint="pass it as bytes"
                ) from error
            return item if dtype is DType.STRING else raw
        case bytes():
            return item if dtype is DType.BYTES else _decoded(item, where)
        case list() | np.ndarray():
            raise _ragged(where)
        case _:
            raise InputError(
                f"{where}: {_quoted(item)} is not text, and the tensor is {dtype}",
                hint="pass a string",
            )


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: not UTF-8 text: {error.reason} at byte {error.start}",
            hint="pass text; a tensor for raw bytes is declared `bytes`, not `string`",
        ) from error


def _numbers(value: object, dtype: DType, where: str) -> Array:
    """An array of booleans or numbers; of Python objects where numpy's types would lose digits."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise _ragged(where) from error
    if not isinstance(value, np.ndarray) and _may_have_lost(array, dtype):
        array = _nested(value, where)
    if array.dtype.kind not in "biufO":
        item = array.ravel().tolist()[0] if array.size else ""
        raise _not_a_number(item, dtype, where)
    return array


def _may_have_lost(array: Array, dtype: DType) -> bool:
    """numpy makes float64 of a list that mixes floats and whole numbers."""
    if array.dtype.kind != "f":
        return False
    _, exact = _exact_range(dtype.numpy)
    return dtype.numpy.kind != "f" or bool((np.abs(array) >= exact).any())


def _cast(array: Array, dtype: DType, where: str) -> Array:
    target = dtype.numpy
    if array.dtype == target:
        return array
    if array.dtype.kind == "f" and target.kind == "f":
        return _narrowed(array, dtype, where)
    if array.dtype.kind != "O" and _all_exact(array, target):
        return array.astype(target)
    items = [_exact(item, dtype, where) for item in array.ravel().tolist()]
    return np.array(items, dtype=target).reshape(array.shape)


def _narrowed(array: Array, dtype: DType, where: str) -> Array:
    with np.errstate(over="ignore"):
        cast = array.astype(dtype.numpy)
    if (lost := np.isinf(cast) & np.isfinite(array)).any():
        raise _does_not_fit(array[lost].tolist()[0], dtype, where)
    return cast


def _all_exact(array: Array, target: np.dtype[np.generic]) -> bool:
    """Whether whole numbers of this range are all exact in the target type."""
    if array.dtype.kind == "f" or not array.size:
        return not array.size
    low, high = _exact_range(target)
    return low <= int(array.min()) and int(array.max()) <= high


def _exact_range(target: np.dtype[np.generic]) -> tuple[int, int]:
    """The whole numbers without a gap that the type holds."""
    if target.kind == "b":
        return 0, 1
    if target.kind == "f":
        limit = 2 ** (np.finfo(target.name).nmant + 1)
        return -limit, limit
    info = np.iinfo(target.name)
    return int(info.min), int(info.max)


def _exact(item: object, dtype: DType, where: str) -> float:
    """One number, checked in Python's own arithmetic, which neither wraps nor rounds."""
    if isinstance(item, np.generic):
        item = item.item()
    if not isinstance(item, int | float):
        raise _ragged(where) if isinstance(item, list) else _not_a_number(item, dtype, where)
    if dtype.numpy.kind == "f":
        return _exact_float(item, dtype, where)
    if isinstance(item, float) and not item.is_integer():
        raise InputError(
            f"{where}: {item} is not a whole number, and the tensor is {dtype}",
            hint="round it first, if that is what you mean",
        )
    low, high = _exact_range(dtype.numpy)
    if not low <= item <= high:
        raise _does_not_fit(item, dtype, where)
    return int(item)


def _exact_float(item: float, dtype: DType, where: str) -> float:
    try:
        with np.errstate(over="ignore"):
            cast = np.array(item, dtype=dtype.numpy).item()
    except OverflowError as error:
        raise _does_not_fit(item, dtype, where) from error
    if math.isinf(cast) and not math.isinf(item):
        raise _does_not_fit(item, dtype, where)
    if isinstance(item, int) and cast != item:
        raise InputError(
            f"{where}: {item} is not exact in {dtype}",
            hint=f"write it as a float, {item}.0, if the nearest one will do",
        )
    return item


def _does_not_fit(item: object, dtype: DType, where: str) -> InputError:
    if dtype.numpy.kind == "f":
        largest = float(np.finfo(dtype.numpy.name).max)
        return InputError(
            f"{where}: {_quoted(item)} does not fit {dtype}, which ends at {largest}",
            hint="change the value, or scale it",
        )
    low, high = _exact_range(dtype.numpy)
    return InputError(
        f"{where}: {_quoted(item)} does not fit {dtype}, which holds {low} to {high}",
        hint="change the value: nothing is wrapped or cut",
    )


def _not_a_number(item: object, dtype: DType, where: str) -> InputError:
    kind = "text" if isinstance(item, str | bytes) else "not a number"
    return InputError(
        f"{where}: {_quoted(item)} is {kind}, and the tensor is {dtype}", hint="pass numbers"
    )


def _ragged(where: str) -> InputError:
    return InputError(
        f"{where}: the lists in it have different lengths",
        hint="pad them to one length, or send one request per row",
    )


def _quoted(item: object) -> str:
    text = ascii(item) if isinstance(item, str) and not item.isprintable() else repr(item)
    return f"`{text[:60]}{'...' if len(text) > 60 else ''}`"
