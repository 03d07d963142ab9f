"""What a model's own answers teach: how near a text was to the ones before, and whether the nearest
had the right answer. Labels outlive the entries they came from: 30 days, the newest so many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.semantic.gate import FEATURES, Bools, Floats

LASTS_S = 30 * 86400.0
LABELS = 6000
NEAR = 0.6
"""The cosine from which on a neighbour teaches something."""

Sample = tuple[Floats, Bools]
"""Features [N, 4], and whether the nearest had the right answer [N]."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A text whose answer is known: it can be looked up again, as if it had just been asked."""

    partition: bytes
    vector: Vector
    answer: Entry


@dataclass(slots=True)
class Label:
    """`features` are None while nothing is near. `at` in Unix seconds. `proves`: it is one to prove
    a gate with, and was not used yet.
    """

    features: tuple[float, ...] | None
    same: bool
    at: float
    proves: bool

    @property
    def counts(self) -> bool:
        return self.features is not None and self.features[0] >= NEAR


class Labels:
    """Every second label is for proofs, each of them once; then it is to learn from as well. A
    request is one label, whatever is asked again. Not for several threads at once.
    """

    def __init__(self) -> None:
        self._labels: deque[Label] = deque()
        self._asked: deque[tuple[Label, Question]] = deque(maxlen=LABELS)
        self._count = 0
        self.since = 0
        """Labels since the last proof."""

    def __len__(self) -> int:
        return len(self._labels)

    def add(
        self,
        features: Sequence[float] | None,
        same: bool,
        now: float,
        question: Question | None = None,
    ) -> None:
        while self._labels and (len(self._labels) == LABELS or now - self._labels[0].at > LASTS_S):
            self._labels.popleft()
        self._count += 1
        label = Label(None if features is None else tuple(features), same, now, self._count % 2 > 0)
        self._labels.append(label)
        self.since += 1
        if question is not None:
            self._asked.append((label, question))

    def to_ask_again(self, count: int) -> list[tuple[Label, Question]]:
        """Those that were not for the longest time. More texts have come since then, and what is
        to be proved is how good the answers are now.
        """
        found = [self._asked.popleft() for _ in range(min(count, len(self._asked)))]
        self._asked.extend(found)
        return found

    def split(self, newest: int) -> tuple[Sample, Sample]:
        """Of the newest so many: those to learn from, and those to prove with."""
        labels = [label for label in list(self._labels)[-newest:] if label.counts]
        return (
            _arrays([label for label in labels if not label.proves]),
            _arrays([label for label in labels if label.proves]),
        )

    def used(self) -> None:
        """A proof has been tried with what it may use."""
        for label in self._labels:
            label.proves = False
        self._asked.clear()
        self.since = 0

    def keep_last(self, count: int) -> None:
        """Forget all before, and prove nothing with what is kept."""
        while len(self._labels) > count:
            self._labels.popleft()
        self.used()

    def saved(self) -> list[list[Any]]:
        """Plain data, for `restored`: without the questions."""
        return [
            [*label.features, label.same, label.at, label.proves]
            for label in self._labels
            if label.features is not None
        ]

    @classmethod
    def restored(cls, rows: list[list[Any]]) -> Labels:
        """Raises ValueError or TypeError for what `saved` does not give."""
        labels = cls()
        for *features, same, at, proves in rows[-LABELS:]:
            if len(features) != FEATURES:
                raise ValueError(f"a label has {len(features)} features, not {FEATURES}")
            label = Label(tuple(map(float, features)), bool(same), float(at), bool(proves))
            labels._labels.append(label)
            labels.since += label.proves
        labels.since *= 2
        return labels


def _arrays(labels: Sequence[Label]) -> Sample:
    features = np.array([label.features for label in labels], np.float64).reshape(-1, FEATURES)
    return features, np.array([label.same for label in labels], bool)
