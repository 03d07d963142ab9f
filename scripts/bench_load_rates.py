"""How many requests a second a served model takes within a promise on latency, by one load."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from mmctl.client.prepared import Prepared
from mmctl.client.transport import open_channel
from mmctl.inference import InferRequest
from mmctl.loadtest.engine import Load, send_on_time
from mmctl.loadtest.record import Recorder
from mmctl.loadtest.schedule import Arrivals, OpenLoop, Phase, send_times

Pair = tuple[float, float]
"""When a request was due, and how long its answer took, in seconds."""

WINDOW_S = 1.0


class Noting(Recorder):
    """Keeps every latency; `overloaded` once one was above `limit_s`."""

    def __init__(self, seconds: float, limit_s: float = math.inf) -> None:
        super().__init__(seconds)
        self.pairs: list[Pair] = []
        self.overloaded = False
        self._limit_s = limit_s

    def answered(self, due: float, at: float) -> None:
        super().answered(due, at)
        self.pairs.append((due, at - due))
        self.overloaded = self.overloaded or at - due > self._limit_s


def offer(
    grpc: str, model: str, due: Sequence[float], seconds: float, limit_s: float = math.inf
) -> Noting:
    """Every request is one row of one number. No more are sent once an answer took `limit_s`:
    the rest would tell nothing. What is under way is waited for, not given up.
    """
    recorder = Noting(seconds, limit_s)
    left = itertools.takewhile(lambda _: not recorder.overloaded, due)
    asyncio.run(_offer(grpc, model, left, recorder))
    return recorder


async def _offer(grpc: str, model: str, due: Iterator[float], recorder: Noting) -> None:
    channel = open_channel(grpc, None)
    try:
        request = InferRequest(model, {"x": np.ones((1, 1), np.float32)})
        prepared = Prepared(channel, grpc, [request], {})

        async def send(number: int) -> str:
            await prepared.send(number, 30.0)
            return ""

        for number in range(3):
            await send(number)
        await send_on_time(Load(send, recorder), due)
    finally:
        await channel.close()


def rate_within(
    grpc: str, model: str, most: float, slo_s: float, percent: float, seconds: float, seed: int
) -> float:
    """By a ramp from a tenth of `most` to `most` requests a second: the rate until which the
    requests of the last second kept the promise.
    """
    phase = Phase(seconds, most / 10, most)
    due = list(send_times(OpenLoop("ramp", (phase,)), Arrivals.POISSON, seed))
    recorder = offer(grpc, model, due, seconds, 3 * slo_s)
    pairs = sorted(recorder.pairs)
    kept = 0.0
    for n, (at, _) in enumerate(pairs):
        window = [took for sent, took in pairs[: n + 1] if sent > at - WINDOW_S]
        late = sum(took > slo_s for took in window)
        if late > max(1, len(window) * (1 - percent / 100)):
            break
        kept = phase.first + (phase.last - phase.first) * at / seconds
    return kept
