"""Traffic for caches, with fixed seeds: what is asked for, as numbers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from mmctl.cache.eviction import Duel

Trace = list[int]
Numbers = npt.NDArray[np.int64]


def zipf(requests: int, items: int, exponent: float, seed: int = 7) -> Numbers:
    odds = 1 / np.arange(1, items + 1) ** exponent
    chosen = np.random.default_rng(seed).choice(items, requests, p=odds / odds.sum())
    return chosen.astype(np.int64)


def with_scan(requests: int) -> Trace:
    """Three in ten are asked for once and never again."""
    items = zipf(requests, 50_000, 0.9)
    once = np.random.default_rng(8).random(requests) < 0.3
    items[once] = 10_000_000 + np.arange(once.sum())
    return items.tolist()


def shifting(requests: int) -> Trace:
    """Five times, other items become the popular ones."""
    phase = np.arange(requests) * 5 // requests
    return ((zipf(requests, 50_000, 1.0) * 7919 + phase * 13007) % 50_000).tolist()


def bursts(requests: int) -> Trace:
    """Each item four times within 2,000 requests, then never again."""
    items = np.repeat(np.arange(requests // 4), 4)
    blurred = np.arange(len(items)) + np.random.default_rng(9).normal(0, 700, len(items))
    return items[np.argsort(blurred)].tolist()


TRACES: dict[str, Callable[[int], Trace]] = {
    "zipf 1.0": lambda requests: zipf(requests, 100_000, 1.0).tolist(),
    "zipf 0.8": lambda requests: zipf(requests, 100_000, 0.8).tolist(),
    "zipf 0.9 and a scan": with_scan,
    "zipf 1.0 that shifts": shifting,
    "bursts": bursts,
}


def key_of(item: int) -> bytes:
    """The key that a number of a trace stands for."""
    return hashlib.sha256(str(item).encode()).digest()


def duel_hits(keys: Sequence[bytes], places: int) -> tuple[int, Duel]:
    """What mmctl's own cache hits, and its order at the end."""
    duel, hits = Duel(places), 0
    for key in keys:
        if duel.asked(key):
            hits += 1
        else:
            duel.add(key, 1)
    return hits, duel


def lru_hits(keys: Sequence[Hashable], places: int) -> int:
    """What keeping the last used ones would hit."""
    order: OrderedDict[Hashable, None] = OrderedDict()
    hits = 0
    for key in keys:
        if key in order:
            hits += 1
            order.move_to_end(key)
        else:
            order[key] = None
            if len(order) > places:
                order.popitem(last=False)
    return hits
