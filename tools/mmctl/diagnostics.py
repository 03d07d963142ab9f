"""A finding about the user's files: the one thing every checker returns."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters: only an error stops a build."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of mistake. `title` names it in a few words; `explanation` says why it is one, and
    the fix; `wrong` and `right` show both as text.
    """

    code: str
    title: str
    explanation: str
    severity: Severity = Severity.ERROR
    wrong: str = ""
    right: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text file; `line` and `column` count from 1."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake (or remark) at one place; `message` and `hint` as in MmctlError."""

    code: str
    severity: Severity
    path: str
    line: int
    column: int
    message: str
    hint: str | None = None

    @classmethod
    def at(
        cls,
        position: Position,
        code: str,
        message: str,
        hint: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> Finding:
        line, column = position.line, position.column
        hint = _clipped(hint) if hint else hint
        return cls(code, severity, position.path, line, column, _clipped(message), hint)

    def text(self) -> str:
        """`file:line:column: CODE message`, with the hint on a line of its own."""
        text = _one_line(f"{self.path}:{self.line}:{self.column}: {self.code} {self.message}")
        return f"{text}\n  hint: {_one_line(self.hint)}" if self.hint else text

    def as_json(self) -> dict[str, object]:
        return asdict(self)


MOST_CHARACTERS = 2000


def _clipped(text: str) -> str:
    """What a file quotes in a message may be the whole file."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, in order of place; at one place as they were found."""
    each = dict.fromkeys(findings)
    return tuple(sorted(each, key=lambda f: (f.path, f.line, f.column, f.code)))


MANY, LISTED = 100, 12


def closest(word: str, known: Iterable[str], cutoff: float) -> str | None:
    """The name most like `word`, None where none is like it to the share `cutoff`.

    Of very many names only those are compared that begin alike.
    """
    names = sorted(dict.fromkeys(known))
    if len(names) > MANY:
        at = bisect(names, word)
        names = names[max(0, at - MANY // 2) : at + MANY // 2]
    return next(iter(get_close_matches(word, names, n=1, cutoff=cutoff)), None)


def _one_line(text: str) -> str:
    """Names of files may hold newlines and codes that command a terminal: those as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """`2 rows`, `1 row`, `no rows`."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A hint that offers the nearest right name, or lists the few there are."""
    names = sorted(dict.fromkeys(known))
    if close := closest(word, names, 0.5):
        return f"did you mean `{close}`?"
    if names:
        more = ", ..." if len(names) > LISTED else ""
        return "known here: " + ", ".join(f"`{name}`" for name in names[:LISTED]) + more
    return None
