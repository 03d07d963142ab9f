"""Answers as people and programs read them. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from mmctl.client.requests import readable_outputs
from mmctl.inference import CacheNote, InferResponse, InferResult
from mmctl.tensors import Array, Signature, dtype_of

PROVENANCE = "provenance"
FEW = 8
FIRST = 4


def result_of(response: InferResponse, note: CacheNote, signature: Signature) -> InferResult:
    """What a caller gets: texts as str, the provenance parsed, in one entry per row."""
    outputs = readable_outputs(response.outputs)
    provenance = None
    if PROVENANCE in outputs:
        own = {PROVENANCE: outputs[PROVENANCE]}
        provenance = _parsed(plain(by_row(own, signature)[PROVENANCE]))
    return InferResult(outputs, response.model, response.version, provenance, note)


def answer_values(response: InferResponse, signature: Signature, ms: float) -> dict[str, object]:
    """What `--json` prints. A bare dtype is one value per row; bytes are {"b64": ...}."""
    outputs = {name: plain(a) for name, a in by_row(response.outputs, signature).items()}
    return {
        "outputs": {name: value for name, value in outputs.items() if name != PROVENANCE},
        "model": response.model,
        "version": int(response.version) if response.version.isdigit() else None,
        "provenance": _parsed(outputs.get(PROVENANCE)),
        "ms": round(ms, 3),
    }


def render_answer(response: InferResponse, signature: Signature) -> str:
    """A block of `name  value` lines per row, long arrays in short."""
    outputs = by_row(response.outputs, signature)
    if not signature.max_batch:
        return _block(outputs)
    rows = max((len(array) for array in outputs.values()), default=0)
    blocks = [
        _block({name: array[row] for name, array in outputs.items() if row < len(array)})
        for row in range(rows)
    ]
    if rows == 1:
        return blocks[0]
    return "\n\n".join(f"row {row}\n{block}" for row, block in enumerate(blocks, start=1))


def by_row(outputs: Mapping[str, Array], signature: Signature) -> dict[str, Array]:
    """The outputs in the model's order, with Triton's [rows, 1] of a bare dtype as [rows].

    Triton sends an ensemble's outputs in the order in which they became ready.
    """
    known = [spec.name for spec in signature.outputs if spec.name in outputs]
    bare = {spec.name for spec in signature.outputs if not spec.type.dims}
    return {
        name: _without_last_axis(outputs[name]) if name in bare else outputs[name]
        for name in dict.fromkeys([*known, *outputs])
    }


def _without_last_axis(array: Array) -> Array:
    return array.reshape(array.shape[:-1]) if array.shape[-1:] == (1,) else array


def plain(array: Array) -> Any:
    """An array as JSON has it: fp32 with no more digits than it has, NaN and infinities as text."""
    items = np.empty(array.size, dtype=object)
    items[:] = [_plain_item(item) for item in array.ravel()]
    return items.reshape(array.shape).tolist()


def _plain_item(item: Any) -> object:
    match item:
        case bytes():
            return {"b64": base64.b64encode(item).decode()}
        case np.floating():
            return float(str(item)) if np.isfinite(item) else _NOT_FINITE[str(item)]
        case np.generic():
            return item.item()
        case _:
            return item


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _parsed(provenance: Any) -> object:
    """Provenance travels as JSON in a string, one per row."""
    if isinstance(provenance, list):
        return [_parsed(item) for item in provenance]
    try:
        return json.loads(provenance) if isinstance(provenance, str) else provenance
    except ValueError:
        return str(provenance)


def _block(values: Mapping[str, Any]) -> str:
    width = max((len(name) for name in values), default=0)
    return "\n".join(f"{name:<{width}}  {_in_short(value)}" for name, value in values.items())


def _in_short(value: Any) -> str:
    """A scalar, a few values whole, or the type, the shape and the first values of many."""
    if not isinstance(value, np.ndarray):
        return _word(value)
    if value.ndim == 0:
        return _word(value[()])
    few = value.ndim == 1 and value.size <= FEW
    words = [_word(item, quoted=True) for item in value.ravel()[: FEW if few else FIRST]]
    if few:
        return f"[{', '.join(words)}]"
    more = ", ..." if value.size > len(words) else ""
    shape = ",".join(map(str, value.shape))
    return f"{dtype_of(value.dtype)}[{shape}]: {', '.join(words)}{more}"


def _word(item: Any, *, quoted: bool = False) -> str:
    """One value; what a terminal would act on is escaped."""
    match item:
        case bytes():
            return f"<{len(item)} bytes>"
        case str():
            printable = item.isprintable()
            return (
                item if printable and not quoted else json.dumps(item, ensure_ascii=not printable)
            )
        case _:
            return json.dumps(_plain_item(item)).strip('"')
