"""The bodies of Triton's HTTP protocol <-> our values: JSON, then the tensors' raw bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from mmctl.errors import InferenceError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Array, dtype_from_triton, dtype_of
from mmctl.wire import decode, encode

LENGTH_HEADER = "Inference-Header-Content-Length"
"""Says how long the JSON in front of the raw bytes is."""


def infer_body(request: InferRequest) -> tuple[bytes, ...]:
    """The JSON, then the bytes of each input."""
    raws = [encode(array) for array in request.inputs.values()]
    head: dict[str, Any] = {
        "inputs": [
            {
                "name": name,
                "shape": array.shape,
                "datatype": dtype_of(array.dtype).wire,
                "parameters": {"binary_data_size": len(raw)},
            }
            for (name, array), raw in zip(request.inputs.items(), raws, strict=True)
        ],
        "parameters": dict(request.parameters),
    }
    if request.request_id:
        head["id"] = request.request_id
    if request.outputs:
        binary = {"binary_data": True}
        head["outputs"] = [{"name": name, "parameters": binary} for name in request.outputs]
    else:
        head["parameters"]["binary_data_output"] = True
    return (json.dumps(head).encode(), *raws)


def infer_response(length: str | None, body: bytes, model: str) -> InferResponse:
    """`length` is what LENGTH_HEADER says. Raises InferenceError for what cannot be read."""
    try:
        size = len(body) if length is None else int(length)
        head = json.loads(body[:size])
        outputs = _outputs(head.get("outputs", []), body, size)
        return InferResponse(outputs, head["model_name"], head.get("model_version", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InferenceError(f"model `{model}`: its answer cannot be read: {error}") from error


def _outputs(heads: list[Mapping[str, Any]], body: bytes, start: int) -> dict[str, Array]:
    sizes = [head.get("parameters", {}).get("binary_data_size") for head in heads]
    ends = [start]
    for size in sizes:
        ends.append(ends[-1] + (size or 0))
    if ends[-1] != len(body):
        raise ValueError(f"{len(body)} bytes came, {ends[-1]} expected")
    return {
        head["name"]: _plain(head)
        if size is None
        else decode(body[first:last], head["datatype"], tuple(head["shape"]))
        for head, size, (first, last) in zip(heads, sizes, pairwise(ends), strict=True)
    }


def _plain(head: Mapping[str, Any]) -> Array:
    """An output whose values are in the JSON: that of a server which does not send raw bytes."""
    dtype = dtype_from_triton(head["datatype"])
    if dtype.is_text:
        texts = np.empty(len(head["data"]), dtype=object)
        texts[:] = [item.encode() for item in head["data"]]
        return texts.reshape(head["shape"])
    return np.array(head["data"], dtype.numpy).reshape(head["shape"])


def error_text(status: int, body: bytes) -> str:
    """Triton's own words; else, from what is not Triton, the status and how its text begins."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode(errors="replace").strip()
        gone = "connection closed: " if status in _GATEWAY else ""
        return f"{gone}HTTP status {status}{': ' if text else ''}{text}"


def status_code(status: int) -> str:
    """The word of gRPC for an HTTP status, as Triton itself translates it the other way."""
    if status in STATUS_CODES:
        return STATUS_CODES[status]
    return "INVALID_ARGUMENT" if 400 <= status < 500 else "INTERNAL"


STATUS_CODES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ALREADY_EXISTS",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_GATEWAY = (502, 503)
"""What a proxy says when there is no server behind it; Triton's 503 has an `error`."""
