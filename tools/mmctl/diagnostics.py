"""A finding about the user's files: the one thing every checker returns."""

from __future__ import annotations

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
        return cls(code, severity, position.path, position.line, position.column, message, hint)

    def text(self) -> str:
        """`file:line:column: CODE message`, with the hint on a line of its own."""
        text = f"{self.path}:{self.line}:{self.column}: {self.code} {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A hint that offers the nearest right name, or lists the few there are."""
    names = sorted(set(known))
    if close := get_close_matches(word, names, n=1, cutoff=0.5):
        return f"did you mean `{close[0]}`?"
    if names:
        return "known here: " + ", ".join(f"`{name}`" for name in names[:12])
    return None
