"""Streams of texts whose answers are known: points around centers, one center per answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.semantic.level import Kept, Level, Verdict
from mmctl.cache.semantic.ring import Ring
from mmctl.cache.settings import Semantic

P = b"partition"
FOREVER = 1e12


def entry(label: object, now: float = 0.0) -> Entry:
    return Entry({"label": np.array([label], object)}, "m", "1", now, FOREVER)


def points(
    count: int, *, answers: int = 20, spread: float = 0.1, wrong: float = 0.0, seed: int = 0
) -> Iterator[tuple[Vector, int]]:
    """Vectors [32] with their answers; of `wrong` the answer is drawn anew."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(answers, 32)) + 1.2
    for _ in range(count):
        label = int(rng.integers(answers))
        vector = centers[label] / np.linalg.norm(centers[label]) + rng.normal(size=32) * spread
        if rng.random() < wrong:
            label = int(rng.integers(answers))
        yield (vector / np.linalg.norm(vector)).astype(np.float32), label


def a_level(policy: object, *, seed: int = 0, ring: Ring[Kept] | None = None) -> Level:
    semantic = Semantic.model_validate({"input": "text", "output": "label", "policy": policy})
    ring = ring or Ring(clock=lambda: 0.0)
    return Level(semantic, ring, clock=lambda: 0.0, chance=random.Random(seed).random)


@dataclass
class Counted:
    lookups: int = 0
    hits: int = 0
    wrong: int = 0
    probes: int = 0


def asked(level: Level, stream: Iterator[tuple[Vector, int]]) -> Counted:
    """As a lookup does it."""
    counted = Counted()
    for vector, label in stream:
        counted.lookups += 1
        verdict = level.look(P, "", vector)
        counted.probes += verdict.probe
        if verdict.accepted and not verdict.probe:
            counted.hits += 1
            counted.wrong += label_of(verdict) != label
        else:
            answer = entry(label)
            level.learn(verdict, answer)
            level.store(P, "", vector, answer)
    return counted


def label_of(verdict: Verdict) -> object:
    assert verdict.entry is not None
    return verdict.entry.outputs["label"].item()
