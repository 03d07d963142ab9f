"""A list tensor between two models: the items of one row as one value of bytes, and back.

    int64 count | count x shape, int64 an axis | [text: int64 length of each element] | the data

All numbers are little-endian, so that every item starts at a multiple of its element's size.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

TEXT = ("string", "bytes")
NUMPY = {
    "bool": np.dtype(bool),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
}
WORD = 8
"""Bytes of a number in the header."""


def pack(items: Sequence[Any], word: str, dims: Sequence[int]) -> bytes:
    """Items of one row, each of `dims`, whose -1 stands for any size, and of the dtype `word`.

    An item of text without dims is `bytes` or `str`, with dims an array of those. Raises
    ValueError when an item is of another dtype or shape.
    """
    arrays = [_array(item, word) for item in items]
    for index, array in enumerate(arrays):
        if word not in TEXT and array.dtype != NUMPY[word]:
            raise ValueError(f"item {index} is {array.dtype}, declared {_shown(word, dims)}")
        if not fits(array.shape, dims):
            shape = list(array.shape)
            raise ValueError(f"item {index} has shape {shape}, declared {_shown(word, dims)}")
    header = [len(arrays), *(size for array in arrays for size in array.shape)]
    if word not in TEXT:
        return b"".join([_numbers(header), *[np.ascontiguousarray(array).data for array in arrays]])
    texts = [_raw(text, i, word) for i, array in enumerate(arrays) for text in array.ravel()]
    return b"".join((_numbers([*header, *map(len, texts)]), *texts))


def unpack(blob: bytes, word: str, dims: Sequence[int]) -> list[Any]:
    """The items of one row: arrays of `word`, views of `blob` that cannot be written to.

    Text comes as `bytes`, with dims as arrays of them. Raises ValueError when `blob` is not what
    `pack` makes of such items.
    """
    (count,), start = _read_numbers(blob, 1, 0)
    if not 0 <= count <= len(blob):
        raise ValueError(f"a list of {len(blob)} bytes cannot have {count} items")
    sizes, start = _read_numbers(blob, count * len(dims), start)
    rank = len(dims)
    shapes = [sizes[i * rank : (i + 1) * rank] for i in range(count)]
    for index, shape in enumerate(shapes):
        if not fits(shape, dims) or any(size < 0 for size in shape):
            raise ValueError(f"item {index} has shape {list(shape)}, not {_shown(word, dims)}")
    counts = [math.prod(shape) for shape in shapes]
    if word in TEXT:
        return _texts(blob, start, shapes, counts)
    return _views(blob, start, shapes, counts, NUMPY[word])


def fits(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether a shape is `dims`, whose -1 stands for any size."""
    return len(shape) == len(dims) and all(
        dim in (-1, size) for size, dim in zip(shape, dims, strict=True)
    )


def _array(item: Any, word: str) -> Any:
    return np.asarray(item, dtype=object if word in TEXT else None)


def _raw(text: Any, index: int, word: str) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytes):
        return text
    raise ValueError(f"item {index} holds {type(text).__name__}, declared {word}")


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _read_numbers(blob: bytes, count: int, start: int) -> tuple[tuple[int, ...], int]:
    """So many numbers of the header, and where the next thing starts."""
    end = start + count * WORD
    if end > len(blob):
        raise ValueError(f"a list of {len(blob)} bytes is cut short: its header has {end} or more")
    return struct.unpack_from(f"<{count}q", blob, start), end


def _views(blob: bytes, start: int, shapes: Any, counts: Sequence[int], dtype: Any) -> list[Any]:
    _check_end(blob, start + sum(counts) * dtype.itemsize)
    items = []
    for shape, count in zip(shapes, counts, strict=True):
        items.append(np.frombuffer(blob, dtype, count, start).reshape(shape))
        start += count * dtype.itemsize
    return items


def _texts(blob: bytes, start: int, shapes: Any, counts: Sequence[int]) -> list[Any]:
    lengths, start = _read_numbers(blob, sum(counts), start)
    if any(length < 0 for length in lengths):
        raise ValueError("a list of text has an element of negative length")
    _check_end(blob, start + sum(lengths))
    texts = []
    for length in lengths:
        texts.append(blob[start : start + length])
        start += length
    items, first = [], 0
    for shape, count in zip(shapes, counts, strict=True):
        part = texts[first : first + count]
        items.append(objects(part, shape) if shape else part[0])
        first += count
    return items


def _check_end(blob: bytes, end: int) -> None:
    if len(blob) != end:
        raise ValueError(f"a list has {len(blob)} bytes, its header says {end}")


def objects(items: Sequence[Any], shape: Sequence[int]) -> Any:
    """An array of Python objects; numpy's own text types would drop final NULs."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def _shown(word: str, dims: Sequence[int]) -> str:
    """As a pipeline writes it: `uint8[*,48,-1,3]`."""
    return f"{word}[{','.join(['*', *map(str, dims)])}]"
