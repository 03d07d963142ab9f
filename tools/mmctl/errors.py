"""Every error mmctl raises on purpose.

    MmctlError
    ├── InputError      exit 2: the input is wrong; the user can fix it
    │   └── InvalidFiles    with one finding per mistake
    ├── Refused         exit 1: the answer is no (a gate failed, files differ)
    └── WorldError      exit 3: the machine, the network or the server failed
        ├── LateError       no answer came in time
        └── InferenceError  Triton answered a request with an error

Anything else that escapes is a bug in mmctl and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmctl.diagnostics import Finding


class MmctlError(Exception):
    """Something went wrong that the reader can act on.

    `message` is one sentence, lower case, no full stop: where, then what is wrong.
    `hint` is one imperative sentence: what to type or change next.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(MmctlError):
    """What the user wrote or passed is wrong."""


class InvalidFiles(InputError):
    """Files of the workspace are wrong; `findings` says each mistake at its place."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.text() for finding in self.findings))


class Refused(MmctlError):
    """The answer is no: a gate failed, or files are not what would be generated."""

    exit_code = 1


class WorldError(MmctlError):
    """The machine, the network or the server failed."""

    exit_code = 3


class InferenceError(WorldError):
    """Triton answered a request with an error.

    `final` says that the request is wrong: the same one would get the same error again.
    """

    def __init__(self, message: str, *, hint: str | None = None, final: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.final = final


class LateError(WorldError):
    """No answer came in the time that was allowed."""


def missing_extra(feature: str, extra: str) -> InputError:
    """The error for a feature whose optional dependency is not installed."""
    return InputError(
        f"{feature} needs the `{extra}` extra, which is not installed",
        hint=f"run `pip install 'mmctl[{extra}]'`",
    )
