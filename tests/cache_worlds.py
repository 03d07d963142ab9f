"""A model that counts how often it is asked, and callers of a cache in threads and tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mmctl.cache.cache import Cache
from mmctl.cache.effects import Pause
from mmctl.cache.keys import Identity
from mmctl.effects import Steps, adrive, by_type, drive
from mmctl.inference import CacheNote, InferRequest, InferResponse

MODEL = Identity("m", "1", "d1")

Given = tuple[InferResponse, CacheNote]


class Model:
    """Answers with the sum of `x` and how often it has run, after `seconds`."""

    def __init__(self, *fails: Exception, version: str = "1", seconds: float = 0.0) -> None:
        self.runs = 0
        self.version = version
        self.seconds = seconds
        self._fails = list(fails)

    def compute(self, request: InferRequest) -> Steps[InferResponse]:
        self.runs += 1
        run = self.runs
        if self.seconds:
            yield Pause(self.seconds)
        if self._fails:
            raise self._fails.pop(0)
        asked = next(iter(request.inputs.values()))
        total = asked.sum() if asked.dtype.kind != "O" else len(asked)
        outputs = {"sum": np.array([total], "f8"), "run": np.array([run], "i8")}
        return InferResponse(outputs, request.model, self.version)


def request(x: Any = 1.0, *, dtype: str = "f4", **more: Any) -> InferRequest:
    return InferRequest("m", {"x": np.atleast_1d(np.array(x, dtype))}, **more)


def text(*texts: Any, **more: Any) -> InferRequest:
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return InferRequest("m", {"text": array}, **more)


def ask(
    cache: Cache,
    model: Model,
    asked: InferRequest | None = None,
    *,
    identity: Identity = MODEL,
    **options: Any,
) -> Given:
    """In this thread."""
    steps = cache.steps(identity, asked or request(), model.compute, **options)
    return drive(steps, performed(cache))


async def asked_in_task(
    cache: Cache, model: Model, asked: InferRequest | None = None, **options: Any
) -> Given:
    steps = cache.steps(MODEL, asked or request(), model.compute, **options)
    return await adrive(steps, by_type(cache.async_performers))


def performed(cache: Cache) -> Callable[[Any], Any]:
    return by_type(cache.performers)


def run_of(given: Given) -> int:
    """Which run of the model gave the answer."""
    return int(given[0].outputs["run"][0])
