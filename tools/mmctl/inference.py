"""Requests and responses as plain values: what client, cache and load test exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mmctl.tensors import Array


@dataclass(frozen=True, slots=True, eq=False)
class InferRequest:
    """One call of a model. Arrays carry the batch axis first when the model batches.

    `outputs` empty asks for all. `version` "" lets the server choose. Strings are object arrays.
    """

    model: str
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...] = ()
    version: str = ""
    request_id: str = ""
    parameters: Mapping[str, str | int | bool] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class InferResponse:
    """The answer: arrays by output name, and the model and version that gave them."""

    outputs: Mapping[str, Array]
    model: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class CacheNote:
    """Where an answer comes from. `level` is one of LEVELS.

    `age_s` is that of a kept answer. `similarity` is the cosine of the two texts and `gate` the
    probability that their answers are equal, of "semantic" alone. `coalesced`: another caller asked
    for the same at the same time, and this is that answer. `stale`: it was older than it may
    normally be.
    """

    level: str
    age_s: float = 0.0
    similarity: float | None = None
    gate: float | None = None
    coalesced: bool = False
    stale: bool = False


NOT_CACHED = CacheNote("none")


@dataclass(frozen=True, slots=True, eq=False)
class InferResult(InferResponse):
    """What a caller of the client gets: the answer with its texts as str, and where it is from.

    `provenance` is what a pipeline tells of its nodes, parsed, one entry per row; None without it.
    """

    provenance: object = None
    cache: CacheNote = NOT_CACHED


LEVELS = ("none", "exact", "normalised", "semantic", "bypass")
"""The model ran; an equal request; an equal text but for its spelling; a text that means the same;
the model ran, and the request is not one that a cache may answer.
"""
