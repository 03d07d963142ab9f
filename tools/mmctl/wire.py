"""Arrays <-> the raw bytes of Triton's protocol. Pure."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from mmctl.tensors import Array, DType, dtype_from_triton

_LENGTH = struct.Struct("<I")


def encode(array: Array) -> bytes:
    """Row by row, little endian; a text is its length in 4 bytes and its UTF-8."""
    if array.dtype.kind == "O":
        return b"".join(encode_text(item) for item in array.ravel().tolist())
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def encode_text(item: str | bytes) -> bytes:
    raw = _as_bytes(item)
    return _LENGTH.pack(len(raw)) + raw


def encoded_size(array: Array) -> int:
    """Length of `encode(array)`, without making it."""
    if array.dtype.kind == "O":
        return sum(_LENGTH.size + len(_as_bytes(item)) for item in array.ravel().tolist())
    return array.nbytes


def decode(raw: bytes, word: str, shape: tuple[int, ...]) -> Array:
    """The array of one output; texts stay bytes. Raises ValueError when `raw` does not fit."""
    if (stored := _stored(word)) is not None:
        return np.frombuffer(raw, stored).reshape(shape)
    texts = np.empty(np.prod(shape, dtype=int), dtype=object)
    texts[:] = _split_texts(raw, len(texts))
    return texts.reshape(shape)


@cache
def _stored(word: str) -> np.dtype[np.generic] | None:
    """How the items of a tensor lie in memory; None for texts."""
    dtype = dtype_from_triton(word)
    return None if dtype is DType.STRING else dtype.numpy.newbyteorder("<")


def _split_texts(raw: bytes, count: int) -> list[bytes]:
    texts: list[bytes] = []
    start = 0
    for _ in range(count):
        if start + _LENGTH.size > len(raw):
            raise ValueError(f"{count} texts expected, {len(texts)} came")
        (length,) = _LENGTH.unpack_from(raw, start)
        start += _LENGTH.size + length
        texts.append(raw[start - length : start])
    if start != len(raw):
        raise ValueError(f"{len(raw)} bytes came, {start} expected")
    return texts


def _as_bytes(item: str | bytes) -> bytes:
    return item.encode() if isinstance(item, str) else item
