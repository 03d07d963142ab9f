"""What makes two requests the same: keys over all that can change an answer. Pure.

Every key is the SHA-256 of a list of parts, each behind its length, so that no two lists give the
same bytes. Floats count as they lie in memory (-0.0 is not 0.0), a text as its UTF-8.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import unicodedata
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mmctl.inference import InferRequest
from mmctl.tensors import Array, dtype_of
from mmctl.wire import encode

SCHEME = "mmctl 1"
"""Changes when keys are made otherwise: answers under older keys are then never found."""

UNSHAPING_PARAMETERS = frozenset(
    {"request_id", "correlation_id", "timeout", "priority", "trace", "traceparent", "tracestate"}
)
"""Parameters that change when an answer comes, never what it is. All others are in the key."""

UNSHAPING_HEADERS = frozenset(
    {
        "baggage",
        "cache-control",
        "grpc-timeout",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-correlation-id",
        "x-request-id",
    }
)
"""All other headers are in the key: Triton can hand them to a model as parameters."""

ACCESS_HEADERS = "triton-grpc-protocol-"
"""So begin those that let somebody steer Triton: no model gets them."""


def is_shaping(header: str) -> bool:
    """Whether a header can change an answer, and is in the key."""
    name = header.lower()
    return name not in UNSHAPING_HEADERS and not name.startswith(ACCESS_HEADERS)


_SAMPLING = ("temperature", "do_sample")
_SEEDS = ("seed", "random_seed")
_LENGTH = struct.Struct("<Q")
_LARGE_BYTES = 16 * 1024
"""Above this a tensor is hashed where it lies; below, a copy is cheaper than a view."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which model answers: its deployed version and, where known, what that is made from.

    `digest` covers the version and all that it calls; "" is unproven: then the number alone stands
    for the content. `platform` is the backend and its precision, "" where the digest covers them.
    """

    model: str
    version: str
    digest: str = ""
    platform: str = ""


def exact_key(tenant: str, identity: Identity, request: InferRequest, epoch: str | int) -> bytes:
    """32 bytes. Requests with equal keys get equal answers from a deterministic model."""
    return _digest(_head("exact", tenant, identity, str(epoch)), request)


def normalised_key(
    tenant: str, identity: Identity, request: InferRequest, text_input: str, epoch: str | int
) -> bytes:
    """The key of `normalised(request)`, apart from all exact ones."""
    head = _head("normalised", tenant, identity, str(epoch))
    return _digest(head, normalised(request, text_input))


def partition_key(
    tenant: str,
    identity: Identity,
    request: InferRequest,
    text_input: str,
    embedder: str,
    epoch: str | int,
) -> bytes:
    """What texts must share before they may be compared: all of the exact key but the one text,
    and the digest of what embeds them.
    """
    head = _head("semantic", tenant, identity, str(epoch))
    return _digest(head + _framed(text_input.encode(), embedder.encode()), request, text_input)


@lru_cache(maxsize=4096)
def tenant_token(tenant: str, secret: bytes | None) -> str:
    """What stands for a tenant in keys; with a secret nobody else can make it."""
    if secret is None:
        return tenant
    return hmac.digest(secret, _framed(b"tenant", tenant.encode()), "sha256").hex()


def normalised(request: InferRequest, text_input: str) -> InferRequest:
    """The request with `text_input` in one spelling: width, case, spaces and the punctuation at
    its end do not count. What is not UTF-8 stays.
    """
    array = request.inputs[text_input]
    texts = np.empty(array.size, dtype=object)
    texts[:] = [_normalised(item) for item in array.astype(object).ravel().tolist()]
    return replace(request, inputs={**request.inputs, text_input: texts.reshape(array.shape)})


def bypass_reason(request: InferRequest) -> str | None:
    """Why this request is never answered from a cache, nor its answer kept; None when it may be."""
    for name in request.parameters:
        if name.startswith("sequence_"):
            return "sequence"
        if name.startswith("shared_memory_"):
            return "shared memory"
    for name, value in request.headers.items():
        if name.lower() == "cache-control" and ("no-store" in value or "no-cache" in value):
            return "no-store"
    return "sampling" if _samples(request) else None


def _samples(request: InferRequest) -> bool:
    """Whether the model is told to draw, and not from which seed: by a parameter or an input."""
    for name in _SAMPLING:
        if name in request.parameters or name in request.inputs:
            break
    else:
        return False
    if any(name in request.parameters or name in request.inputs for name in _SEEDS):
        return False
    return any(
        _is_on(request.parameters.get(name)) or _is_on(request.inputs.get(name))
        for name in _SAMPLING
    )


def _is_on(value: object) -> bool:
    if value is None:
        return False
    if isinstance(value, np.ndarray):
        return any(_is_on(item) for item in value.ravel().tolist())
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "0.0", "false")
    return bool(value)


def _normalised(item: object) -> object:
    if isinstance(item, bytes):
        try:
            item = item.decode()
        except UnicodeDecodeError:
            return item
    text = " ".join(unicodedata.normalize("NFKC", str(item)).casefold().split())
    end = len(text)
    while end and (text[end - 1] == " " or unicodedata.category(text[end - 1]).startswith("P")):
        end -= 1
    return text[:end] or text


def _digest(head: bytes, request: InferRequest, without: str = "") -> bytes:
    """Of the request behind `head`; of the input `without` only name, type and shape count."""
    parts = [head, _LENGTH.pack(len(request.inputs))]
    digest = hashlib.sha256()
    for name, array in sorted(request.inputs.items()):
        raw = b"" if name == without else _raw(array)
        parts += [_input_head(name, array.dtype, array.shape), _LENGTH.pack(len(raw))]
        if isinstance(raw, memoryview):
            digest.update(b"".join(parts))
            digest.update(raw)
            parts = []
        else:
            parts.append(raw)
    parts.append(_rest(request))
    digest.update(b"".join(parts))
    return digest.digest()


@lru_cache(maxsize=4096)
def _head(purpose: str, tenant: str, identity: Identity, epoch: str) -> bytes:
    parts = (
        SCHEME,
        purpose,
        tenant,
        identity.model,
        identity.version,
        identity.digest,
        identity.platform,
        epoch,
    )
    return _framed(*(part.encode() for part in parts))


@lru_cache(maxsize=4096)
def _input_head(name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    word = dtype_of(dtype.newbyteorder("=")).wire
    return _framed(name.encode(), word.encode(), struct.pack(f"<{len(shape)}q", *shape))


def _raw(array: Array) -> bytes | memoryview:
    """The bytes of a tensor as they go to the server, copied only where that is cheap."""
    kind = array.dtype.kind
    if kind in "OSU" or array.dtype.byteorder == ">":
        return encode(array.astype(object) if kind in "SU" else array)
    if array.nbytes < _LARGE_BYTES:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _rest(request: InferRequest) -> bytes:
    """Requested outputs, parameters and headers."""
    if not (request.outputs or request.parameters or request.headers):
        return _NOTHING
    parameters = sorted(
        (name, *_value(value))
        for name, value in request.parameters.items()
        if name not in UNSHAPING_PARAMETERS
    )
    headers = sorted(
        (name.lower(), value) for name, value in request.headers.items() if is_shaping(name)
    )
    return b"".join(
        _LENGTH.pack(len(rows))
        + b"".join(_framed(*(part.encode() for part in row)) for row in rows)
        for rows in ([(name,) for name in sorted(request.outputs)], parameters, headers)
    )


_NOTHING = _LENGTH.pack(0) * 3


def _value(value: str | int | bool) -> tuple[str, str]:
    """1, True and "1" are three values: the model sees the type."""
    return type(value).__name__, value if isinstance(value, str) else repr(value)


def _framed(*parts: bytes) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)
