"""The bytes of an ONNX file without its weights: seconds and gigabytes saved for who wants shapes.

Reads Protobuf's wire format, skips the data of large tensors by seeking, and keeps all else, so
that any reader of ONNX reads what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

SMALL = 4096
"""Bytes up to which a part is copied unseen, with its data: a Reshape's shape is data too."""

MAX_KEPT = 128 * 1024 * 1024

MAX_DEPTH = 40
"""Of messages in messages: a graph in a node in a graph. Protobuf itself stops at 100."""

Fields = Mapping[int, str]

INNER: Mapping[str, Fields] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""Kind of message -> its fields that may hold weights, and what they are."""

WEIGHTS: Mapping[str, frozenset[int]] = {
    # float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data
    "tensor": frozenset({4, 5, 6, 7, 9, 10, 11}),
    "attribute": frozenset({4}),  # bytes: engines of other runtimes
}

LISTS = frozenset({7, 8, 9})
"""Fields of an attribute that stand once for each number: the rest of it is copied unseen."""


class CutOff(Exception):
    """The file ends, or breaks, in the middle of something."""


class TooLarge(Exception):
    """More than MAX_KEPT bytes are no weights."""


def without_weights(file: BinaryIO, size: int) -> bytes:
    """The ONNX model in `file`, which has `size` bytes. Raises CutOff and TooLarge."""
    return _Copier(file).message("model", size, 0)


class _Copier:
    """Reads forward through one file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.kept = 0

    def message(self, kind: str, length: int, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise CutOff("is nested too deeply")
        if length <= SMALL:
            return self._read(length)
        kept: list[bytes] = []
        inner, weights = INNER[kind], WEIGHTS.get(kind, frozenset())
        left = length
        while left > 0:
            tag, tag_bytes = self._varint()
            left -= len(tag_bytes)
            field, wire = tag >> 3, tag & 7
            if kind == "attribute" and field in LISTS:
                kept.append(tag_bytes + self._read(left))
                break
            if wire == 2:
                size, size_bytes = self._varint()
                left -= len(size_bytes) + size
                if left < 0:
                    raise CutOff("ends in the middle of something")
                if field in inner:
                    body = self.message(inner[field], size, depth + 1)
                    kept += (tag_bytes, _varint_bytes(len(body)), body)
                elif field in weights and size > SMALL:
                    self.file.seek(size, 1)
                else:
                    kept += (tag_bytes, size_bytes, self._read(size))
            else:
                value = self._plain(wire)
                left -= len(value)
                kept += (tag_bytes, value)
        if left < 0:
            raise CutOff("ends in the middle of something")
        return b"".join(kept)

    def _plain(self, wire: int) -> bytes:
        match wire:
            case 0:
                return self._varint()[1]
            case 1:
                return self._read(8)
            case 5:
                return self._read(4)
        raise CutOff("has bytes that are no Protobuf")

    def _varint(self) -> tuple[int, bytes]:
        number, read = 0, b""
        while len(read) < 10:
            byte = self._read(1)
            read += byte
            number |= (byte[0] & 0x7F) << 7 * (len(read) - 1)
            if byte[0] < 0x80:
                return number, read
        raise CutOff("has bytes that are no Protobuf")

    def _read(self, length: int) -> bytes:
        self.kept += length
        if self.kept > MAX_KEPT:
            raise TooLarge
        content = self.file.read(length) if length >= 0 else b""
        if len(content) != length:
            raise CutOff("ends in the middle of something")
        return content


def _varint_bytes(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
