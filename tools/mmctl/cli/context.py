"""What all commands share: the workspace they work in, and how they speak while they work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.errors import InputError, Refused

if TYPE_CHECKING:
    from mmctl.workspace import Workspace

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""The option of every command whose answer a program may read."""

_start = Path(".")


def start_in(directory: Path) -> None:
    """Remember `-C DIR` for the command that follows."""
    global _start  # noqa: PLW0603 - one command a process, set once before it
    _start = directory


def workspace() -> Workspace:
    """The workspace around the current folder or `-C DIR`; raises InputError when there is none."""
    from mmctl.workspace import find_workspace  # pydantic: 0.1 s that `--help` does not need

    return find_workspace(_start)


def say(line: str) -> None:
    """One line of progress, on stderr: stdout is for answers."""
    print(line, file=sys.stderr, flush=True)


def confirm(question: str, hint: str) -> None:
    """Returns when the answer is yes. Raises Refused when it is no, InputError with `hint` when
    nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise InputError("cannot ask: there is no terminal", hint=hint)
    if not typer.confirm(question, err=True):
        raise Refused("nothing was changed")
