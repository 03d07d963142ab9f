"""YAML files with positions: every value knows its line and column.

YAML here means YAML 1.2 as people expect it: `on` and `no` are words, booleans are `true` and
`false`, a key may stand once. Scalars stay text until the field that takes them gives them a
type, so `version: 24.10` stays "24.10".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mmctl.diagnostics import Finding, Position, nearest
from mmctl.errors import InvalidFiles
from mmctl.files import read_text

Key = str | int
Location = tuple[Key, ...]
Data = str | None | list["Data"] | dict[str, "Data"]

MAX_DEPTH = 64
MAX_BYTES = 1024 * 1024
MAX_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: plain `data`, and where each key and value of it stands."""

    path: str
    data: Data
    keys: Mapping[Location, Position]
    values: Mapping[Location, Position]

    def at(self, *location: Key) -> Position:
        """Where the value at `location` stands, or the nearest thing around it."""
        while location and location not in self.values:
            location = location[:-1]
        return self.values.get(location, Position(self.path))

    def at_key(self, *location: Key) -> Position:
        """Where the key at the end of `location` stands, or its value."""
        return self.keys.get(location) or self.at(*location)


def read_document(path: Path, *, shown: str | None = None) -> Document:
    """Parse a file; `shown` is the path that findings name."""
    return parse_document(read_text(path), shown or str(path))


def parse_document(text: str, path: str) -> Document:
    """Raises InvalidFiles (Y001) at the line and column of what is not YAML."""
    if len(text) > MAX_BYTES:
        raise InvalidFiles([Finding.at(Position(path), "Y001", "file is larger than 1 MiB")])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise InvalidFiles([_syntax_finding(error, path)]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidFiles([Finding.at(Position(path), "Y001", f"not YAML: {error}")]) from error
    builder = _Builder(path)
    data = builder.build(root, ()) if root is not None else {}
    if builder.findings:
        raise InvalidFiles(builder.findings)
    return Document(path, data, builder.keys, builder.values)


def _syntax_finding(error: yaml.MarkedYAMLError, path: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    position = Position(path, mark.line + 1, mark.column + 1) if mark else Position(path)
    problem = (error.problem or "not YAML").lower()
    hint = None
    if "'['" in problem or "']'" in problem:
        hint = 'quote a type that has brackets inside { }: "fp32[384]"'
    elif "'?'" in problem:
        hint = 'quote a name that ends in ? inside { }: "score?"'
    elif "'\\t'" in problem:
        hint = "indent with spaces: YAML takes no tabs there"
    return Finding.at(position, "Y001", problem, hint)


class _Builder:
    """Turns YAML nodes into data while noting every position and every doubled key."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.keys: dict[Location, Position] = {}
        self.values: dict[Location, Position] = {}
        self.findings: list[Finding] = []

    def build(self, node: yaml.Node, location: Location) -> Data:
        self.values[location] = self._position(node)
        if len(self.values) > MAX_VALUES:
            message = f"file has more than {MAX_VALUES} values, anchors followed"
            raise InvalidFiles([Finding.at(Position(self.path), "Y001", message)])
        if len(location) > MAX_DEPTH:
            self._add(node, "nested too deeply")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]
        return self._scalar(cast(yaml.ScalarNode, node))

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Data]:
        data: dict[str, Data] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add(key_node, "a key must be a word")
                continue
            key = self._text(key_node)
            if key in data:
                first = self.keys[(*location, key)]
                self._add(key_node, f"key `{key}` stands here twice, first in line {first.line}")
                continue
            self.keys[(*location, key)] = self._position(key_node)
            data[key] = self.build(value_node, (*location, key))
        return data

    def _scalar(self, node: yaml.ScalarNode) -> str | None:
        plain = node.style is None
        if plain and node.value in ("", "~", "null"):
            return None
        return self._text(node)

    def _text(self, node: yaml.ScalarNode) -> str:
        if not is_text(str(node.value)):
            self._add(node, "half of a surrogate pair is no character")
        return str(node.value)

    def _position(self, node: yaml.Node) -> Position:
        return Position(self.path, node.start_mark.line + 1, node.start_mark.column + 1)

    def _add(self, node: yaml.Node, message: str) -> None:
        self.findings.append(Finding.at(self._position(node), "Y002", message))


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: an escape can name half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


PLAIN = {
    "tuple_type": "write a list: [a, b]",
    "dict_type": "write a mapping: {KEY: VALUE}",
    "model_type": "write a mapping: {KEY: VALUE}",
    "string_type": "write one value, not a list or a mapping",
    "too_short": "it may not be empty",
}
"""What YAML calls what pydantic says in Python's words."""


def _flag(value: object) -> object:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A boolean field: `true` or `false`, nothing else."""

_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SIZE = re.compile(r"([0-9]+) ?(KiB|MiB|GiB|)")


def _size(value: object) -> object:
    if isinstance(value, str):
        if (found := _SIZE.fullmatch(value)) is None:
            raise ValueError("write a number of bytes, or KiB, MiB, GiB: 256MiB")
        return int(found[1]) * _UNITS[found[2]]
    return value


Size = Annotated[int, BeforeValidator(_size), Field(ge=1)]
"""Bytes: `4096`, or `256MiB`."""


class Entry(BaseModel):
    """Base of every mapping a user writes: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


E = TypeVar("E", bound=BaseModel)


def load_entry(kind: type[E], document: Document, *location: Key) -> E:
    """The part of `document` at `location` as a value of `kind`.

    Raises InvalidFiles with every mistake at once, each at its own line and column.
    """
    data: Any = document.data
    for key in location:
        data = data[key]
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        findings = [_entry_finding(kind, document, location, e) for e in error.errors()]
        raise InvalidFiles(sorted(findings, key=lambda f: (f.line, f.column, f.code))) from error


def _entry_finding(
    kind: type[BaseModel], document: Document, prefix: Location, error: Mapping[str, Any]
) -> Finding:
    location = (*prefix, *_real_location(document, prefix, error["loc"]))
    if error["type"] == "extra_forbidden":
        key = str(location[-1])
        hint = nearest(key, _known_keys(kind, error["loc"][:-1]))
        return Finding.at(document.at_key(*location), "Y003", f"unknown key `{key}`", hint)
    if error["type"] == "missing":
        key = str(error["loc"][-1])
        return Finding.at(document.at(*location), "Y004", f"`{key}` is missing")
    message = PLAIN.get(error["type"], str(error["msg"]).removeprefix("Value error, "))
    message = message[:1].lower() + message[1:]
    name = f"`{location[-1]}`: " if location else ""
    return Finding.at(document.at(*location), "Y005", f"{name}{message}")


def _real_location(document: Document, prefix: Location, loc: Sequence[Key]) -> Location:
    """pydantic's location without the tags of unions, which are no keys of the file."""
    real: Location = ()
    for key in loc:
        if (*prefix, *real, key) in document.values:
            real = (*real, key)
    return real


def _known_keys(kind: type[BaseModel], loc: Sequence[Key]) -> Iterator[str]:
    """Keys that the entry at `loc` inside `kind` may have; of a union, those of all its kinds."""
    found = [kind]
    for key in loc:
        fields = [entry.model_fields.get(str(key)) for entry in found]
        inner = [e for f in fields for e in _entries_in(getattr(f, "annotation", None))]
        found = inner or found
    for entry in found:
        for name, field in entry.model_fields.items():
            yield field.alias or name


def _entries_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _entries_in(argument)
