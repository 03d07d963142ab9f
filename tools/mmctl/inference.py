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
