"""Protobuf's text format as a tree with positions: what config.pbtxt says, before what it means.

Protobuf's own parser gives a message and forgets the text: keys given twice are lost, places too.
Grammar: https://protobuf.dev/reference/protobuf/textformat-spec/ (extensions and Any left out:
Triton's configs have none).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, NoReturn

MAX_DEPTH = 100
"""How deep protobuf's parsers go."""


class TextError(Exception):
    """The text cannot be read on from `offset`."""

    def __init__(self, message: str, offset: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class Scalar(NamedTuple):
    """One value. `text` is the word, the number with its sign, or the decoded string."""

    kind: Literal["word", "number", "string"]
    text: str | bytes
    offset: int

    def __str__(self) -> str:
        return self.text.decode("utf-8", "replace") if isinstance(self.text, bytes) else self.text


class Block(NamedTuple):
    """`{ ... }`: fields in the order of the text."""

    fields: tuple[Field, ...]
    offset: int


Value = Scalar | Block


class Field(NamedTuple):
    """`name: value`, `name { ... }` or `name: [ ... ]`; `values` is empty where nothing is given.

    `start` is the offset of the name, `end` that after the last value.
    """

    name: str
    values: tuple[Value, ...]
    start: int
    end: int
    listed: bool = False


@dataclass(frozen=True)
class Text:
    """A text and where its lines start."""

    content: str

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.content))]


class _Token(NamedTuple):
    """`kind` is word, number or string, a mark itself, or end."""

    kind: str
    text: str
    offset: int


_TOKENS = re.compile(
    r"""(?:\s+|\#[^\n]*)+
      |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?[fF]?)(?![\w.]))
      |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
      |(?P<mark>[{}<>\[\]:,;-])
      |(?P<wrong>[^\s\#])
    """,
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}


def parse_textproto(content: str) -> Block:
    """Raises TextError at the first place that cannot be read.

    A field without a value is no error here: it has no values, and reading goes on.
    """
    return _Parser(content).parse()


class _Parser:
    def __init__(self, content: str) -> None:
        self._content = content
        end = _Token("end", "", len(content.rstrip()))
        self._tokens = [*_tokens(content), end, end]
        self._at = 0

    def parse(self) -> Block:
        return self._block(None, 0, 0)

    def _block(self, opener: _Token | None, offset: int, depth: int) -> Block:
        if depth > MAX_DEPTH:
            raise TextError(f"nested more than {MAX_DEPTH} deep", offset)
        closing = _CLOSING[opener.text] if opener else ""
        fields: list[Field] = []
        while True:
            token = self._peek()
            if token.kind == "end":
                if opener is None:
                    return Block(tuple(fields), offset)
                line, _ = Text(self._content).position(opener.offset)
                message = f"`{opener.text}` of line {line} is never closed"
                raise TextError(message, opener.offset, f"add the missing `{closing}`")
            if token.kind == closing:
                self._at += 1
                return Block(tuple(fields), offset)
            fields.append(self._field(depth))

    def _field(self, depth: int) -> Field:
        name = self._next()
        if name.kind != "word":
            self._refuse(name, "a field name")
        colon = self._take(":")
        token = self._peek()
        if token.kind in _CLOSING:
            return self._separated(name, (self._value(depth),))
        if token.kind == "[":
            return self._separated(name, self._list(depth), listed=True)
        if not colon:
            self._refuse(token, f"`:` or `{{` after `{name.text}`")
        if self._no_value(token):
            return self._separated(name, ())
        return self._separated(name, (self._value(depth),))

    def _no_value(self, token: _Token) -> bool:
        """Whether the field ends here: the next token closes, or is the name of another field."""
        if token.kind != "word":
            return token.kind in ("end", "}", ">", ",", ";")
        return self._tokens[self._at + 1].kind in (":", "{", "<", "[")

    def _separated(self, name: _Token, values: tuple[Value, ...], *, listed: bool = False) -> Field:
        end = self._tokens[self._at - 1]
        if not self._take(","):
            self._take(";")
        return Field(name.text, values, name.offset, end.offset + len(end.text), listed)

    def _list(self, depth: int) -> tuple[Value, ...]:
        opener = self._next()
        if self._take("]"):
            return ()
        values = [self._value(depth)]
        while not self._take("]"):
            if not self._take(","):
                self._refuse_item(opener)
            values.append(self._value(depth))
        return tuple(values)

    def _value(self, depth: int) -> Value:
        token = self._next()
        if token.kind == "word":
            return Scalar("word", token.text, token.offset)
        if token.kind == "number":
            return Scalar("number", token.text, token.offset)
        if token.kind == "string":
            return self._string(token)
        if token.kind in _CLOSING:
            return self._block(token, token.offset, depth + 1)
        if token.kind != "-":
            self._refuse(token, "a value")
        number = self._next()
        if number.kind == "number" or number.text in ("inf", "infinity", "nan"):
            return Scalar("number", f"-{number.text}", token.offset)
        return self._refuse(number, "a number after `-`")

    def _string(self, token: _Token) -> Scalar:
        if "\\" not in token.text and self._peek().kind != "string":
            return Scalar("string", token.text[1:-1], token.offset)
        parts = [_decode(token)]
        while self._peek().kind == "string":
            parts.append(_decode(self._next()))
        content = b"".join(parts)
        try:
            return Scalar("string", content.decode(), token.offset)
        except UnicodeDecodeError:
            return Scalar("string", content, token.offset)

    def _take(self, mark: str) -> bool:
        taken = self._tokens[self._at].kind == mark
        self._at += taken
        return taken

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _refuse_item(self, opener: _Token) -> NoReturn:
        """At the end of the item before: that is where the comma is missing."""
        before, token = self._tokens[self._at - 1], self._peek()
        line, _ = Text(self._content).position(opener.offset)
        found = "the end of the file" if token.kind == "end" else f"`{token.text}`"
        message = f"expected `,` or `]` in the list that begins in line {line}, found {found}"
        raise TextError(message, before.offset + len(before.text))

    def _refuse(self, token: _Token, wanted: str) -> NoReturn:
        found = "the end of the file" if token.kind == "end" else f"`{token.text}`"
        raise TextError(f"expected {wanted}, found {found}", token.offset)


def _tokens(content: str) -> Iterator[_Token]:
    for match in _TOKENS.finditer(content):
        kind, text = match.lastgroup, match[0]
        if kind == "wrong":
            raise _unreadable(content, match.start())
        if kind is not None:
            yield _Token(text if kind == "mark" else kind, text, match.start())


def _unreadable(content: str, at: int) -> TextError:
    character = content[at]
    if character in "\"'":
        return TextError("this string does not end in its line", at, f"close it with {character}")
    if character.isdigit():
        word = re.match(r"[\w.]+", content[at:])
        return TextError(f"`{word.group() if word else character}` is not a number", at)
    shown = f"`{character}`" if character.isprintable() else f"character U+{ord(character):04X}"
    return TextError(f"{shown} cannot stand here", at)


_ESCAPES = re.compile(
    rb"\\(?:([abfnrtv?\\'\"])|([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})"
    rb"|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))"
)
_LETTERS = dict(zip(b"abfnrtv?\\'\"", b"\a\b\f\n\r\t\v?\\'\"", strict=True))


def _decode(token: _Token) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        letter, octal, hexadecimal, short, long, wrong = match.groups()
        if letter:
            return bytes([_LETTERS[letter[0]]])
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if wrong is None and (code := int(short or long, 16)) <= 0x10FFFF:
            return chr(code).encode("utf-8", "surrogatepass")
        text = match.group().decode("utf-8", "replace")
        raise TextError(f"`{text}` is no escape that protobuf knows", token.offset)

    return _ESCAPES.sub(plain, token.text[1:-1].encode("utf-8", "surrogatepass"))
