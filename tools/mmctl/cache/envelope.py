"""How an answer lies in a shared store: readable only as what it is, whole and under its own key.

    MMC1 | length of header | header (msgpack) | tensors | SHA-256, or HMAC with a secret

The header repeats the key (`echo`), so that an answer moved under another key is none. Nothing of
it is code: there is no pickle, and msgpack without extensions knows plain values only.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from mmctl.errors import InputError
from mmctl.inference import InferResponse
from mmctl.tensors import Array, dtype_of
from mmctl.wire import decode, encode

MAGIC = b"MMC1"
MAX_BYTES = 64 * 1024 * 1024
"""Of one envelope, and of what it unpacks to. Larger answers are not kept."""
PACK_ABOVE_BYTES = 64 * 1024
"""Tensors above this are compressed where a piece of them becomes an eighth smaller."""

Vector = npt.NDArray[np.float32]

_PREFIX = struct.Struct("<4sI")
_SEAL_BYTES = 32
_LIMITS = {
    "strict_map_key": True,
    "max_str_len": 64 * 1024,
    "max_bin_len": 64 * 1024,
    "max_array_len": 4096,
    "max_map_len": 64,
    "max_ext_len": 0,
}


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An answer that is kept. `outputs` cannot be written to, whoever holds them.

    `created` is in Unix seconds. After `ttl_s` it is old; for `stale_s` more it may be given while
    a new one is fetched. `digest` and `epoch` are those it was made under. `vector` embeds the
    text that was asked.
    """

    outputs: Mapping[str, Array]
    model: str
    version: str
    created: float
    ttl_s: float
    stale_s: float = 0.0
    digest: str = ""
    epoch: str = ""
    vector: Vector | None = None

    def age_s(self, now: float) -> float:
        return max(0.0, now - self.created)

    def is_fresh(self, now: float) -> bool:
        """An entry from the future is none: some clock is wrong."""
        return -_SKEW_S <= now - self.created < self.ttl_s

    def is_alive(self, now: float) -> bool:
        return -_SKEW_S <= now - self.created < self.ttl_s + self.stale_s

    def response(self) -> InferResponse:
        return InferResponse(dict(self.outputs), self.model, self.version)


_SKEW_S = 60.0


def kept(response: InferResponse, *, created: float, ttl_s: float, **more: Any) -> Entry:
    """The response as an entry of its own: no later change of its arrays reaches it."""
    outputs = {name: _own(array) for name, array in response.outputs.items()}
    return Entry(outputs, response.model, response.version, created, ttl_s, **more)


def _own(array: Array) -> Array:
    """A view of what nobody can write to: numpy gives out no writable view of it."""
    if array.dtype.kind != "O":
        return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    own = array.copy()
    own.flags.writeable = False
    return own.view()


def seal(entry: Entry, echo: bytes, secret: bytes | None = None) -> bytes:
    """`echo` is the key that the envelope will lie under."""
    import msgpack

    tensors = [_packed(encode(array)) for array in entry.outputs.values()]
    header = msgpack.packb(
        {
            "echo": echo,
            "model": entry.model,
            "version": entry.version,
            "created": entry.created,
            "ttl_s": entry.ttl_s,
            "stale_s": entry.stale_s,
            "digest": entry.digest,
            "epoch": entry.epoch,
            "vector": b"" if entry.vector is None else entry.vector.astype("<f4").tobytes(),
            "outputs": [
                [name, dtype_of(array.dtype).wire, list(array.shape), len(tensor), size]
                for (name, array), (tensor, size) in zip(
                    entry.outputs.items(), tensors, strict=True
                )
            ],
        }
    )
    body = b"".join([_PREFIX.pack(MAGIC, len(header)), header, *(raw for raw, _ in tensors)])
    return body + _seal_of(body, secret)


def unseal(
    raw: bytes,
    echo: bytes,
    secret: bytes | None = None,
    *,
    on_bad: Callable[[str], object] = lambda reason: None,
) -> Entry | None:
    """The entry; None when `raw` is not whole, not ours or not for `echo`: `on_bad` hears why.

    Reasons: "size", "seal", "echo", "form". Never raises, whatever `raw` is.
    """
    try:
        return _unsealed(raw, echo, secret)
    except _BadError as bad:
        on_bad(str(bad))
        return None


class _BadError(Exception):
    pass


def _unsealed(raw: bytes, echo: bytes, secret: bytes | None) -> Entry:
    least = _PREFIX.size + _SEAL_BYTES
    if not least < len(raw) <= MAX_BYTES:
        raise _BadError("size")
    body = memoryview(raw)[:-_SEAL_BYTES]
    if not hmac.compare_digest(_seal_of(body, secret), raw[-_SEAL_BYTES:]):
        raise _BadError("seal")
    magic, length = _PREFIX.unpack_from(body)
    if magic != MAGIC or least + length > len(raw):
        raise _BadError("form")
    start = _PREFIX.size + length
    header = _header(bytes(body[_PREFIX.size : start]))
    if header.get("echo") != echo:
        raise _BadError("echo")
    try:
        return _entry(header, body[start:])
    except (ValueError, TypeError, KeyError, OverflowError, InputError, zlib.error) as error:
        raise _BadError("form") from error


def _header(raw: bytes) -> dict[str, Any]:
    import msgpack

    try:
        header = msgpack.unpackb(raw, **_LIMITS)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise _BadError("form") from error
    if not isinstance(header, dict):
        raise _BadError("form")
    return header


def _entry(header: dict[str, Any], body: memoryview) -> Entry:
    """Raises ValueError and its like for a header that is sealed and yet not ours."""
    outputs: dict[str, Array] = {}
    start = budget = 0
    for name, word, shape, length, size in header["outputs"]:
        budget += size
        if min(length, size, *shape, 0) < 0 or start + length > len(body) or budget > MAX_BYTES:
            raise ValueError("lengths")
        raw = _unpacked(body[start : start + length], size)
        start += length
        if word == "BYTES" and prod(shape) * 4 > size:
            raise ValueError("more texts than bytes")
        outputs[_text(name)] = _locked(decode(raw, _text(word), tuple(shape)))
    if start != len(body):
        raise ValueError("more bytes than tensors")
    vector = np.frombuffer(header["vector"], "<f4") if header["vector"] else None
    return Entry(
        outputs,
        _text(header["model"]),
        _text(header["version"]),
        float(header["created"]),
        float(header["ttl_s"]),
        float(header["stale_s"]),
        _text(header["digest"]),
        _text(header["epoch"]),
        vector,
    )


def _locked(array: Array) -> Array:
    """As read: numbers lie in bytes, which nobody can write to."""
    return _own(array) if array.dtype.kind == "O" else array


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _packed(raw: bytes) -> tuple[bytes, int]:
    """What is written, and how long it is unpacked; the two lengths differ when it is packed.

    A piece from the middle says whether it is worth the time: floats of a network hardly pack.
    """
    if len(raw) > PACK_ABOVE_BYTES and _packs(raw[len(raw) // 2 :][:_PIECE_BYTES]):
        packed = zlib.compress(raw, 1)
        if len(packed) < len(raw):
            return packed, len(raw)
    return raw, len(raw)


_PIECE_BYTES = 8 * 1024


def _packs(piece: bytes) -> bool:
    return len(zlib.compress(piece, 1)) < len(piece) * 7 // 8


def _unpacked(raw: memoryview, size: int) -> bytes:
    if len(raw) == size:
        return bytes(raw)
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(raw, size + 1)
    if len(unpacked) != size or not unpacker.eof:
        raise ValueError("packed length")
    return unpacked


def _seal_of(body: bytes | memoryview, secret: bytes | None) -> bytes:
    """Without a secret it tells damage only; with one, forgery too."""
    if secret is None:
        return hashlib.sha256(body).digest()
    return hmac.digest(secret, body, "sha256")
