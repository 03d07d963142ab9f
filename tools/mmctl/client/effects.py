"""What the client's core wants done outside of itself.

    answer = yield Infer(request, 1.5)                      # an InferResponse
    told = yield Describe("tag", "", identify=True)         # a Description
    candidacy = yield Seek("tag")                           # a Candidacy
    ends = yield Gather((steps, steps))                     # a list: what each gave, or its error
    yield Mirror((request,), 1.5)                           # at once; nobody gets the answers
    answers = yield Open(request, 1.5)                      # of a decoupled model
    answer = yield Next(answers)                            # None after the last

Those of the cache (mmctl.cache.effects) come beside them. A driver has one row per type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmctl.cache.effects import Describe, Infer
from mmctl.effects import Steps
from mmctl.inference import InferRequest

__all__ = ["Describe", "Gather", "Infer", "Mirror", "Next", "Open", "Seek"]


@dataclass(frozen=True, slots=True)
class Seek:
    """Ask whether a model has a candidate."""

    model: str


@dataclass(frozen=True, slots=True)
class Gather:
    """Do all of these at the same time, to the end."""

    steps: tuple[Steps[Any], ...]


@dataclass(frozen=True, slots=True)
class Mirror:
    """Send copies in the background, or none where too many are on their way."""

    requests: tuple[InferRequest, ...]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request that has any number of answers: an iterator over these."""

    request: InferRequest
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Next:
    """Wait for the next answer of an open stream: an InferResponse, or None after the last."""

    answers: Any
