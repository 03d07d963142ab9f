"""Where the value of an input comes from: written out, or in a file.

A source is a JSON value whose leaves may be files: text, a number, FromFile, FromNpy, or nested
lists of these. `read_source` turns it into what Client.infer takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.lib import format

from mmctl.errors import InputError
from mmctl.tensors import Array, TensorSpec


@dataclass(frozen=True, slots=True)
class FromFile:
    """The bytes of a file."""

    path: Path


@dataclass(frozen=True, slots=True)
class FromNpy:
    """The array of a .npy file."""

    path: Path


Leaf = str | int | float | bool | None | FromFile | FromNpy
Source = Leaf | list["Source"]


def parse_option(text: str) -> tuple[str, str]:
    """`NAME=VALUE` of `-i`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(
            f"`-i {text}`: no `=` between name and value",
            hint="write `-i NAME=VALUE`, or `-i NAME=@FILE`",
        )
    return name, value


def parse_source(texts: Sequence[str], spec: TensorSpec) -> Source:
    """The values that `-i` gives one input: one is a row or a whole batch, several are rows.

    `@FILE` reads a file; `@@` begins a text that starts with @. Numbers are JSON.
    """
    rows = [_parse_value(text, spec) for text in texts]
    return rows[0] if len(rows) == 1 else rows


def _parse_value(text: str, spec: TensorSpec) -> Source:
    if not spec.type.dtype.is_text:
        return _parse_numbers(text, spec)
    value: Source = FromFile(Path(text[1:])) if text.startswith("@") else text
    if text.startswith("@@"):
        value = text[1:]
    for _ in spec.type.dims:
        value = [value]
    return value


def _parse_numbers(text: str, spec: TensorSpec) -> Source:
    if text.startswith("@"):
        if not text.endswith(".npy"):
            raise InputError(
                f"`-i {spec.name}`: `{text[1:]}` is not a .npy file, and the tensor is {spec.type}",
                hint="save the array with numpy.save, or write the numbers as JSON",
            )
        return FromNpy(Path(text[1:]))
    try:
        value: Source = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"`-i {spec.name}`: `{text[:60]}` is not JSON, and the tensor is {spec.type}",
            hint="write a number, true or false, or a list: [1, 2.5]",
        ) from error
    return value


def read_source(source: Source, where: str) -> object:
    """The value, files read. Raises InputError for a file that cannot be."""
    match source:
        case list():
            return [read_source(item, where) for item in source]
        case FromFile(path):
            return _read_bytes(path, where)
        case FromNpy(path):
            return _read_npy(path, where)
        case _:
            return source


def leaves(source: Source) -> list[Leaf]:
    """In the order in which an array of them is laid out."""
    if isinstance(source, list):
        return [leaf for item in source for leaf in leaves(item)]
    return [source]


def _read_bytes(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, where, error) from error


def _read_npy(path: Path, where: str) -> Array:
    """Never unpickles: an array of objects is refused."""
    try:
        with path.open("rb") as file:
            array: Array = format.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
            return array
    except OSError as error:
        raise _unreadable(path, where, error) from error
    except (ValueError, EOFError, MemoryError) as error:
        raise InputError(
            f"{where}: {path}: not an array that is safe to read: {error}",
            hint="save numbers with numpy.save(path, array)",
        ) from error


def _unreadable(path: Path, where: str, error: OSError) -> InputError:
    return InputError(
        f"{where}: {path}: {(error.strerror or str(error)).lower()}",
        hint="name a file that exists; for text that begins with @ write @@",
    )


def source_text(source: Source) -> str:
    """A source in few words: a text as it is, a file by its name."""
    match source:
        case str():
            return source
        case FromFile(path) | FromNpy(path):
            return path.name
        case list():
            return f"[{', '.join(source_text(item) for item in source)}]"
        case _:
            return json.dumps(source)
