"""Requests that Triton makes up while it loads a model: W001, W002.

Measured on Triton 24.10: a sample is `batch_size` requests of one row each, so that a file holds
one row, whatever the batch size; what a longer file has behind it is never read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from mmctl.diagnostics import Rule, Severity, nearest
from mmctl.lint.repository import Model, Repository, read_bytes
from mmctl.lint.rules import Check, Mistake
from mmctl.lint.signatures import Io, IoTensor, agree, io_of
from mmctl.triton.onnx_backend import shape_text
from mmctl.triton.schema import word_of

FOLDER = "warmup"
LENGTH_BYTES = 4
BYTES: Mapping[str, int] = {
    **dict.fromkeys(("TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8"), 1),
    **dict.fromkeys(("TYPE_UINT16", "TYPE_INT16", "TYPE_FP16", "TYPE_BF16"), 2),
    **dict.fromkeys(("TYPE_UINT32", "TYPE_INT32", "TYPE_FP32"), 4),
    **dict.fromkeys(("TYPE_UINT64", "TYPE_INT64", "TYPE_FP64"), 8),
}


def _samples(model: Model) -> Iterator[tuple[int, Any]]:
    """Those that Triton runs; an ensemble may have none, which another rule says."""
    if not model.is_ensemble:
        yield from enumerate(model.message.model_warmup)


# ---------------------------------------------------------------- W001


def _find_wrong_samples(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, sample in _samples(model):
        name = f"warm-up `{sample.name}`" if sample.name else f"warm-up {number}"
        if sample.batch_size == 0:
            yield Mistake(
                model.at("model_warmup", number),
                f"{name} has no `batch_size`, so Triton skips it",
                "write `batch_size: 1`",
                Severity.WARNING,
            )
            continue
        io = io_of(model)
        yield from _wrong_batch(model, number, sample.batch_size, io.max_batch, name)
        yield from _wrong_names(model, number, sample, io, name)
        for key, tensor in sorted(sample.inputs.items()):
            declared = (io.inputs or {}).get(key)
            for message, hint in _wrong_input(tensor, declared):
                at = model.at("model_warmup", number, "inputs", key)
                yield Mistake(at, f"{name}, input `{key}`: {message}", hint)


def _wrong_batch(
    model: Model, number: int, size: int, limit: int | None, name: str
) -> Iterator[Mistake]:
    if limit is not None and limit >= 0 and size > max(limit, 1):
        yield Mistake(
            model.at("model_warmup", number, "batch_size"),
            f"{name} has `batch_size` {size}, and `max_batch_size` is {limit}",
            f"write `batch_size: {max(limit, 1)}`",
        )


def _wrong_names(model: Model, number: int, sample: Any, io: Io, name: str) -> Iterator[Mistake]:
    if io.inputs is None or io.grows:
        return
    known = {*io.inputs, *_added_inputs(model)}
    unknown = [key for key in sorted(sample.inputs) if key not in known]
    missing = [
        key for key, tensor in io.inputs.items() if not tensor.optional and key not in sample.inputs
    ]
    for key in unknown:
        yield Mistake(
            model.at("model_warmup", number, "inputs", key),
            f"{name}: the model has no input `{key}`",
            nearest(key, missing or known),
            None if missing else Severity.WARNING,
        )
    if missing and not unknown:
        shown = ", ".join(f"`{key}`" for key in missing)
        yield Mistake(
            model.at("model_warmup", number),
            f"{name} is missing the required input {shown}",
            'add `inputs { key: "..." value { ... } }`',
        )


def _added_inputs(model: Model) -> Iterator[str]:
    """Inputs that Triton itself gives to the model."""
    batching = model.message.sequence_batching
    yield from (control.name for control in batching.control_input)
    yield from (state.input_name for state in batching.state)
    for entry in model.message.batch_input:
        yield from entry.target_name


def _wrong_input(tensor: Any, declared: IoTensor | None) -> Iterator[tuple[str, str | None]]:
    dims, word = tuple(tensor.dims), word_of(tensor, "data_type")
    if not tensor.WhichOneof("input_data_type"):
        yield "no values are given", "write `zero_data: true`, `random_data` or `input_data_file`"
    if declared is not None and declared.data_type and word != declared.data_type:
        given = word if tensor.data_type else "not given"
        hint = f"write `data_type: {declared.data_type}`"
        yield f"the type is {given}, and the model takes {declared.data_type}", hint
    if any(dim < 1 for dim in dims):
        size = "every dimension needs a size: -1 and 0 are none"
        yield f"the dims are {shape_text(dims)}, and {size}", "write the sizes to warm up with"
    elif declared is not None and declared.dims is not None and not agree(dims, declared.dims):
        batched = len(dims) == len(declared.dims) + 1
        message = (
            f"the dims are {shape_text(dims)}, and the model takes {shape_text(declared.dims)}"
        )
        yield message, "leave the batch axis out" if batched else None


WRONG_SAMPLE = Check(
    Rule(
        "W001",
        "warm-up that does not fit the model",
        "A warm-up sample gives every required input of the model, by its name, with its type and "
        "with dims that have a size each and no batch axis. `batch_size` says how many rows; left "
        "out it is 0, and the sample is skipped. A warm-up that fails keeps the model from "
        "loading, and on Triton 24.10 it may take the server with it.",
        wrong='inputs { key: "input" value { data_type: TYPE_FP32 dims: [ -1 ] zero_data: true } }',
        right='inputs { key: "feat" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } }',
    ),
    _find_wrong_samples,
)

# ---------------------------------------------------------------- W002


def _find_wrong_files(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, sample in _samples(model):
        for key, tensor in sorted(sample.inputs.items()):
            if sample.batch_size == 0 or tensor.WhichOneof("input_data_type") != "input_data_file":
                continue
            file = tensor.input_data_file
            wrong = OUTSIDE if ".." in file.split("/") else _wrong_file(model, tensor)
            if wrong is not None:
                message, hint, severity = wrong
                at = model.at("model_warmup", number, "inputs", key, "value", "input_data_file")
                yield Mistake(at, message, hint, severity)


Wrong = tuple[str, str, Severity]

OUTSIDE: Wrong = (
    f"the warm-up file lies outside the folder `{FOLDER}`: it is not read here",
    f"move it into the folder `{FOLDER}` of the model",
    Severity.WARNING,
)


def _wrong_file(model: Model, tensor: Any) -> Wrong | None:
    name = f"{FOLDER}/{tensor.input_data_file}"
    path = Path(f"{model.path}/{name}")
    hint = f"files of warm-ups lie in the folder `{FOLDER}` of the model"
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return f"the warm-up file `{name}` does not exist", hint, Severity.ERROR
    if not stat.S_ISREG(found.st_mode):
        return f"the warm-up file `{name}` is no file", hint, Severity.ERROR
    dims, word = tuple(tensor.dims), word_of(tensor, "data_type")
    if not dims or any(dim < 1 for dim in dims):
        return None
    if word == "TYPE_STRING":
        return _wrong_strings(path, name, prod(dims))
    if word in BYTES:
        return _wrong_size(
            name, found.st_size, prod(dims) * BYTES[word], f"{word}{shape_text(dims)}"
        )
    return None


def _wrong_size(name: str, size: int, wanted: int, shown: str) -> Wrong | None:
    if size == wanted:
        return None
    hint = "it holds the raw values of one row, as `array.tofile` writes them"
    if size < wanted:
        message = f"the warm-up file `{name}` has {size} bytes, and {shown} expects {wanted}"
        return message, hint, Severity.ERROR
    message = f"of the {size} bytes of the warm-up file `{name}` only the first {wanted} are read"
    return f"{message} ({shown})", hint, Severity.WARNING


def _wrong_strings(path: Path, name: str, wanted: int) -> Wrong | None:
    try:
        content = read_bytes(path)
    except OSError:
        return None  # too large to walk through, or gone
    at = count = 0
    while at < len(content):
        start, at, count = at, at + LENGTH_BYTES, count + 1
        if at > len(content):
            why = f"its length, {LENGTH_BYTES} bytes, is cut off after {len(content) - start}"
            return _prefix(name, count, why)
        length = int.from_bytes(content[start:at], "little")
        if length > len(content) - at:
            left = len(content) - at
            return _prefix(name, count, f"its length prefix says {length} bytes, and {left} follow")
        at += length
    if count != wanted:
        message = f"the number of strings in the warm-up file `{name}` is {count}, not {wanted}"
        return message, _PREFIX_HINT, Severity.ERROR
    return None


_PREFIX_HINT = (
    "each string is its length in bytes (UTF-8, not characters) as 4 bytes, little end first, "
    "and then the bytes"
)


def _prefix(name: str, number: int, why: str) -> Wrong:
    return f"string {number} of the warm-up file `{name}`: {why}", _PREFIX_HINT, Severity.ERROR


WRONG_FILE = Check(
    Rule(
        "W002",
        "wrong warm-up file",
        "`input_data_file` names a file in the model's folder `warmup` with the raw bytes of one "
        "row: product of the dims times the size of the type, whatever `batch_size` is. Strings "
        "are written one after the other, each with its length in bytes in front (4 bytes, little "
        "end first). An image file or .npy is neither.",
        wrong='inputs { key: "x" value { ... input_data_file: "cat.png" } }',
        right='inputs { key: "x" value { ... input_data_file: "cat.bin" } }',
    ),
    _find_wrong_files,
)

WARMUP_CHECKS: tuple[Check, ...] = (WRONG_SAMPLE, WRONG_FILE)
