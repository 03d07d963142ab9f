"""A request to a model, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from mmctl.tensors import Array

Inputs = Mapping[str, Array]
Outputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One request. `outputs` empty asks for all; a `stream` may bring several answers."""

    model: str
    inputs: Inputs
    outputs: tuple[str, ...] = ()
    version: str = ""
    parameters: Mapping[str, str | int | bool] = field(default_factory=dict)
    stream: bool = False


class Fate(StrEnum):
    """How a request ended. After the last three the server is not what it was before."""

    ANSWERED = "answered"
    REFUSED = "refused"
    LATE = "late"
    PROCESS_DIED = "process died"
    SERVER_DIED = "server died"


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """`answers` are several for a stream; `text` is why there is none, in one line."""

    fate: Fate
    answers: tuple[Outputs, ...] = ()
    text: str = ""
    hint: str | None = None

    @property
    def ok(self) -> bool:
        return self.fate is Fate.ANSWERED

    @property
    def spoils(self) -> bool:
        """Whether nothing may be asked of this server any more."""
        return self.fate not in (Fate.ANSWERED, Fate.REFUSED)


T = TypeVar("T")
Asking = Generator[Question, Reply, T]
"""Code that asks as it goes: it yields questions, is sent replies, and returns what it learnt.
What it does is pure; who runs it decides where the replies come from.
"""
