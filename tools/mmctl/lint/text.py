"""config.pbtxt read as text: what protobuf would refuse, drop or never see, at its place.

Rules C001 to C004, C016 and E003. The result is Triton's own message, with the place of each field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmctl.diagnostics import Finding, Position, Rule, Severity, nearest
from mmctl.lint.placeholders import fill_placeholders, find_placeholders
from mmctl.lint.places import Places
from mmctl.lint.words import nearest_word
from mmctl.triton.pbtxt import new_message
from mmctl.triton.releases import Release
from mmctl.triton.schema import FIELDS_SINCE, ROOT, FieldKind, fields_of, new_entry
from mmctl.triton.textproto import Block, Field, Scalar, Text, TextError, Value, parse_textproto

WORD = "C001"
PLACEHOLDER = "C002"
SYNTAX = "C003"
FIELD = "C004"
EXCLUDES = "C016"
DOUBLE_KEY = "E003"
SCHEDULER = "E012"

TEXT_RULES: tuple[Rule, ...] = (
    Rule(
        WORD,
        "word that Triton does not know",
        "Types, kinds and formats are fixed words. Triton cannot read the file with another one: "
        "its log says `failed to read text proto`, the client only `failed to poll`.",
        wrong='input [ { name: "x" data_type: TYPE_FLOAT32 dims: [ 4 ] } ]',
        right='input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]',
    ),
    Rule(
        PLACEHOLDER,
        "placeholder of a template",
        "The file is a template whose places were never filled. Fill them with the tool that the "
        "template came with, or check it with `--set NAME=VALUE`.",
        wrong="max_batch_size: ${triton_max_batch_size}",
        right="max_batch_size: 8",
    ),
    Rule(
        SYNTAX,
        "text that cannot be read",
        "Protobuf's text format has `name: value`, `name { ... }` and `name: [ a, b ]`. A field "
        "needs a value, and one that does not repeat stands once.",
        wrong="max_batch_size:\ninput [ { ... } ]",
        right="max_batch_size: 8\ninput [ { ... } ]",
    ),
    Rule(
        FIELD,
        "field that Triton does not know",
        "An unknown field makes Triton refuse the whole file, also one that only a newer release "
        "knows.",
        wrong="sequence { max_sequence_idle_microseconds: 5000 }",
        right="sequence_batching { max_sequence_idle_microseconds: 5000 }",
    ),
    Rule(
        EXCLUDES,
        "fields that exclude each other",
        "Of some fields only one may be set: a model has one scheduler and one version policy.",
        wrong="dynamic_batching { }\nsequence_batching { }",
        right="dynamic_batching { }",
    ),
    Rule(
        DOUBLE_KEY,
        "key given twice",
        "Maps keep one value for a key, so protobuf silently drops the first of two. In an "
        "output_map a tensor then has no writer.",
        wrong='output_map { key: "y" value: "a" }\noutput_map { key: "y" value: "b" }',
        right='output_map { key: "y" value: "a" }\noutput_map { key: "z" value: "b" }',
    ),
)

MAX_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True)
class ConfigText:
    """A config.pbtxt: `message` is Triton's ModelConfig, as far as the text could be read.

    `broken` says that it is not what the user meant, so that nothing more can be said about it.
    """

    shown: str
    text: Text
    tree: Block
    message: Any
    findings: tuple[Finding, ...] = ()

    @property
    def broken(self) -> bool:
        return any(
            finding.severity is Severity.ERROR and finding.code != DOUBLE_KEY
            for finding in self.findings
        )

    def at(self, *location: str | int) -> Position:
        """Where the value at `location` stands, or the nearest thing around it that does.

        A location names fields, numbers of repeated ones, and keys of maps:
        `("ensemble_scheduling", "step", 0, "input_map", "x")`.
        """
        line, column = self.text.position(self._places.offset(location))
        return Position(self.shown, line, column)

    @cached_property
    def _places(self) -> Places:
        return Places(self.tree)


def read_config_text(
    content: str,
    shown: str,
    *,
    release: Release | None = None,
    values: Mapping[str, str] | None = None,
) -> ConfigText:
    """Read a config.pbtxt; everything wrong with the text itself is in `findings`.

    `values` fill placeholders by name. `release` is the Triton that it is for, None where unknown.
    """
    if len(content) > MAX_CHARACTERS:
        finding = Finding.at(Position(shown), SYNTAX, "the file is larger than 4 MiB")
        return _unread(content[:1000], shown, [finding])
    content = fill_placeholders(content, values or {})
    text = Text(content)
    left = [
        _placeholder_finding(found.name, found.offset, text, shown)
        for found in find_placeholders(content)
    ]
    if left:
        return _unread(content, shown, left)
    try:
        tree = parse_textproto(content)
    except TextError as error:
        line, column = text.position(error.offset)
        finding = Finding.at(Position(shown, line, column), SYNTAX, error.message, error.hint)
        return _unread(content, shown, [finding])
    message = new_message()
    filler = _Filler(text, shown, release)
    filler.fill(message, ROOT, tree)
    return ConfigText(shown, text, tree, message, tuple(filler.findings))


def _unread(content: str, shown: str, findings: list[Finding]) -> ConfigText:
    return ConfigText(shown, Text(content), Block((), 0), new_message(), tuple(findings))


def _placeholder_finding(name: str, offset: int, text: Text, shown: str) -> Finding:
    line, column = text.position(offset)
    # A copy from a template's file is checked on purpose; the template itself is no mistake.
    template = shown.endswith((".template", ".in", ".j2", ".jinja", ".jinja2"))
    return Finding.at(
        Position(shown, line, column),
        PLACEHOLDER,
        f"placeholder `{name}` is not filled",
        "fill the template"
        if name.startswith("{%")
        else f"fill the template, or check it with `--set {name}=VALUE`",
        Severity.INFO if template else Severity.ERROR,
    )


# ---------------------------------------------------------------- tree -> message


@dataclass
class _Filler:
    """Puts a tree into a message, field by field, and keeps what does not fit."""

    text: Text
    shown: str
    release: Release | None
    findings: list[Finding] = field(default_factory=list)

    def fill(self, message: Any, kind: str, block: Block) -> None:
        known = fields_of(kind)
        seen: dict[str, Field] = {}
        groups: dict[str, Field] = {}
        for entry in block.fields:
            found = known.get(entry.name)
            if found is None:
                hint = nearest(entry.name, known)
                self._add(FIELD, f"unknown field `{entry.name}`", entry.start, hint)
                continue
            self._check_release(kind, entry)
            if not found.repeated:
                self._check_once(message, entry, found, seen, groups)
            if not entry.values and not entry.listed:
                self._add(SYNTAX, f"`{entry.name}` has no value", entry.start)
            elif entry.listed and not found.repeated:
                self._add(SYNTAX, f"`{entry.name}` takes one value, no list", entry.start)
            elif found.mapping:
                self._fill_map(message, found, entry)
            else:
                for value in entry.values:
                    self._put(message, found, value)

    def _check_release(self, kind: str, entry: Field) -> None:
        since = FIELDS_SINCE.get(f"{kind}.{entry.name}")
        if since and self.release and self.release < since:
            self._add(
                FIELD,
                f"`{entry.name}` came with Triton {since}; {self.release} refuses the file",
                entry.start,
                "leave the field out, or serve with a newer release",
            )

    def _check_once(
        self,
        message: Any,
        entry: Field,
        kind: FieldKind,
        seen: dict[str, Field],
        groups: dict[str, Field],
    ) -> None:
        if first := seen.get(entry.name):
            line, _ = self.text.position(first.start)
            twice = f"`{entry.name}` stands here twice, first in line {line}"
            # Protobuf does not see a first one that is 0, and takes the second.
            sees = message.HasField(kind.name) if kind.presence else getattr(message, kind.name)
            severity = Severity.ERROR if sees else Severity.WARNING
            self._add(SYNTAX, twice, entry.start, "keep one of them", severity)
        elif kind.group and (other := groups.get(kind.group)):
            code = SCHEDULER if "ensemble_scheduling" in (entry.name, other.name) else EXCLUDES
            line, _ = self.text.position(other.start)
            both = f"`{entry.name}` and `{other.name}` (line {line}) exclude each other"
            hint = None
            if code == SCHEDULER:
                hint = "an ensemble has no scheduler of its own: set it in the models that it calls"
            self._add(code, both, entry.start, hint)
        seen.setdefault(entry.name, entry)
        groups.setdefault(kind.group, entry)

    def _fill_map(self, message: Any, kind: FieldKind, entry: Field) -> None:
        target = getattr(message, kind.name)
        for value in entry.values:
            if not isinstance(value, Block):
                self._add(SYNTAX, _wanted(kind, value), value.offset)
                continue
            pair = new_entry(kind.message)
            self.fill(pair, kind.message, value)
            if pair.key in target:
                doubled = f"`{kind.name}` has the key `{pair.key}` twice"
                self._add(DOUBLE_KEY, doubled, value.offset)
            if fields_of(kind.message)["value"].takes == "message":
                target[pair.key].CopyFrom(pair.value)
            else:
                target[pair.key] = pair.value

    def _put(self, message: Any, kind: FieldKind, value: Value) -> None:
        if kind.takes == "message":
            if not isinstance(value, Block):
                self._add(SYNTAX, _wanted(kind, value), value.offset)
            elif kind.repeated:
                self.fill(getattr(message, kind.name).add(), kind.message, value)
            else:
                inner = getattr(message, kind.name)
                inner.SetInParent()
                self.fill(inner, kind.message, value)
            return
        got = self._scalar(kind, value)
        if got is None:
            return
        if kind.repeated:
            getattr(message, kind.name).append(got)
        else:
            setattr(message, kind.name, got)

    def _scalar(self, kind: FieldKind, value: Value) -> Any:
        """The value as Python has it, or None and a finding."""
        if isinstance(value, Scalar):
            if kind.words is not None:
                return self._word(kind, value)
            got = _READERS[kind.takes](kind, value)
            if got is not None:
                return got
        code = SYNTAX
        hint = None
        if (
            isinstance(value, Scalar)
            and kind.takes == "integer"
            and re.fullmatch(r"[A-Z][A-Z0-9_]*", str(value))
        ):
            code, hint = PLACEHOLDER, f"write the number, or check with `--set {value}=VALUE`"
        self._add(code, _wanted(kind, value), value.offset, hint)
        return None

    def _word(self, kind: FieldKind, value: Scalar) -> int | None:
        words = kind.words or {}
        if value.kind == "word" and value.text in words:
            return words[str(value.text)]
        number = _integer(kind, value)
        if isinstance(number, int) and number in words.values():
            return number
        message = f"`{kind.name}` has no word `{value}`"
        self._add(WORD, message, value.offset, nearest_word(str(value), words))
        return None

    def _add(
        self,
        code: str,
        message: str,
        offset: int,
        hint: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        position = Position(self.shown, *self.text.position(offset))
        self.findings.append(Finding.at(position, code, message, hint, severity))


def _wanted(kind: FieldKind, value: Value) -> str:
    takes = {
        "message": "a block { ... }",
        "string": "a text in quotes",
        "flag": "true or false",
        "integer": f"a whole number from {kind.low} to {kind.high}"
        if kind.low or kind.high > 2**32
        else "a whole number of 0 or more",
        "float": "a number",
    }
    if kind.takes == "integer" and kind.low:
        takes["integer"] = "a whole number"
    shown = "a block" if isinstance(value, Block) else f"`{value}`"
    return f"`{kind.name}` takes {takes[kind.takes]}, not {shown}"


def _integer(kind: FieldKind, value: Scalar) -> int | None:
    if value.kind != "number":
        return None
    text = str(value)
    base = 8 if re.fullmatch(r"-?0[0-7]+", text) else 0
    try:
        number = int(text, base)
    except ValueError:
        return None
    return number if kind.words is not None or kind.low <= number <= kind.high else None


def _float(_kind: FieldKind, value: Scalar) -> float | None:
    """Decimal only: protobuf takes neither 0x10 nor 010 for a float."""
    text = str(value)
    try:
        return None if value.kind == "string" else float(text.removesuffix("f").removesuffix("F"))
    except ValueError:
        return float(text) if text.lstrip("-") == "inf" else None


_FLAGS = {"true": True, "True": True, "t": True, "1": True} | {
    "false": False,
    "False": False,
    "f": False,
    "0": False,
}


def _flag(_kind: FieldKind, value: Scalar) -> bool | None:
    return None if value.kind == "string" else _FLAGS.get(str(value))


def _string(_kind: FieldKind, value: Scalar) -> str | None:
    return value.text if value.kind == "string" and isinstance(value.text, str) else None


_READERS: Mapping[str, Any] = {
    "integer": _integer,
    "float": _float,
    "flag": _flag,
    "string": _string,
    "message": lambda _kind, _value: None,
}
