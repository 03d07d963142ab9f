"""What a level of the policy `verified` may give: only what was proved, while it holds.

It begins without a gate: then the static rule may answer, once its own probes have kept the promise
often enough. As labels come, a gate is fitted and a line
chosen on one half of them; where that half says that it can be done, it is proved on the other, of
which nothing was ever chosen. Attempts share the risk of being wrong: of 5 % the first has a half,
each next one half of what is left. What has proved a gate is used up. Probes watch a gate that was
proved; when they break the promise, the epoch ends and all begins again. A better gate takes the
place of one that holds, after a proof of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from mmctl.cache.semantic.alarm import Alarm
from mmctl.cache.semantic.bounds import upper
from mmctl.cache.semantic.gate import CONFIDENCE, Calibration, Gate, fitted, lines_of, proved
from mmctl.cache.semantic.labels import Labels, Question, Sample

FIRST_LOOK = 300
"""Labels before the first attempt. The next look comes after 50 more and a twentieth."""
WAIT = 1.25
"""After an attempt that failed the next waits for so many times the labels."""
LEARNED_FROM = 4000
"""The newest labels, on which a gate is fitted."""
WINDOWS = (1, 2 / 3, 1 / 2, 1 / 3, 1 / 4)
"""Shares of the labels since the last proof, the newest of them: early ones, when little was kept,
say too little good of now. Which one is used is decided on the half that proves nothing.
"""
BETTER = 1.1
"""A gate is replaced when another would answer so many times as many requests."""
KEPT_AFTER_ALARM = 1000
REMEMBERED = 1000
"""Lookups whose features are remembered, to compare gates by."""
MOST_ATTEMPTS = 1000
"""More there cannot be: each waits for a quarter more labels."""
ENOUGH_PROBES = 149
"""From here on the probes say more than the proof."""


class Trust:
    """Of one model and embedder. Not for several threads at once."""

    def __init__(self, max_error: float, embedder: str = "") -> None:
        """`embedder` is the digest of what makes the vectors; "" until that is known."""
        self.max_error = max_error
        self.embedder = embedder
        self.epoch = 1
        self.calibration: Calibration | None = None
        self.labels = Labels()
        self.alarm = Alarm(max_error)
        self._seen: deque[tuple[float, ...]] = deque(maxlen=REMEMBERED)
        self._attempts = 0
        self._next_look = FIRST_LOOK

    def chance(self, features: tuple[float, ...]) -> float | None:
        """That the answer of the nearest is right; None while no gate is proved."""
        self._seen.append(features)
        return None if self.calibration is None else self.calibration.gate.score(features)

    def accepts(self, chance: float) -> bool:
        return self.calibration is not None and chance >= self.calibration.line

    @property
    def trusts_static(self) -> bool:
        """Whether the static rule may answer: its probes, and one more that is wrong, keep to the
        promise.
        """
        return self.alarm.errors + 1 <= self.max_error * (self.alarm.probes + 1)

    def learn(
        self,
        features: tuple[float, ...] | None,
        same: bool,
        now: float,
        question: Question | None = None,
        *,
        probe: bool = False,
    ) -> None:
        """`features` are None where nothing was near. `probe`: it would have been given."""
        self.labels.add(features, same, now, question)
        if probe and self.alarm.add(not same):
            self._begin_again()
        elif self.labels.since >= self._next_look:
            self._next_look += 50 + self._next_look // 20
            self._attempt()

    def _attempt(self) -> None:
        """A proof, where the half that proves nothing says that there is one."""
        gate = fitted(*self.labels.split(LEARNED_FROM)[0])
        if gate is None:
            return
        confidence = 1 - (1 - CONFIDENCE) / 2 ** (self._attempts + 1)
        lines, proof = self._chosen(gate, confidence)
        if not lines:
            return
        found = proved(gate, lines, proof, self.max_error, confidence)
        if found is None:
            self._attempts += 1
            self._next_look = max(self._next_look, int(WAIT * self.labels.since))
        else:
            self._take(found)

    def _chosen(self, gate: Gate, confidence: float) -> tuple[list[float], Sample]:
        """The window in which most could be answered, its lines, and what to prove them with."""
        lines: list[float] = []
        most, chosen = 0.0, self.labels.split(0)[1]
        for share in WINDOWS:
            fit, proof = self.labels.split(int(share * self.labels.since))
            if not len(fit[1]):
                continue
            some = lines_of(gate, fit, self.max_error, confidence)
            if some and (covers := float((gate.scores(fit[0]) >= some[-1]).mean())) > most:
                most, lines, chosen = covers, some, proof
        return lines, chosen

    def _take(self, found: Calibration) -> None:
        self.labels.used()
        self._attempts, self._next_look = 0, FIRST_LOOK
        if self.calibration is None or (
            self._coverage(found) > BETTER * self._coverage(self.calibration)
        ):
            self.calibration = found
            self.alarm = Alarm(self.max_error)

    def _coverage(self, calibration: Calibration) -> float:
        """The share of the last lookups that it would answer."""
        if not self._seen:
            return 0.0
        scores = calibration.gate.scores(np.array(self._seen))
        return float((scores >= calibration.line).mean())

    def _begin_again(self) -> None:
        self.epoch += 1
        self.calibration = None
        self.alarm = Alarm(self.max_error)
        self.labels.keep_last(KEPT_AFTER_ALARM)
        self._attempts, self._next_look = 0, FIRST_LOOK

    @property
    def error_upper(self) -> float | None:
        """With 95 % confidence no larger share of the hits is wrong: what the probes say, or the
        proof while these are few.
        """
        if self.alarm.probes >= ENOUGH_PROBES:
            return upper(self.alarm.errors, self.alarm.probes, CONFIDENCE)
        return None if self.calibration is None else self.calibration.error_upper

    def saved(self) -> dict[str, Any]:
        """Plain data, for `restored`."""
        return {
            "schema": 1,
            "embedder": self.embedder,
            "max_error": self.max_error,
            "epoch": self.epoch,
            "attempts": self._attempts,
            "calibration": self.calibration.saved() if self.calibration else None,
            "alarm": self.alarm.saved(),
            "labels": self.labels.saved(),
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any], max_error: float) -> Trust:
        """A gate that was proved for another promise is not taken, its labels are. Raises
        ValueError, TypeError, KeyError, AttributeError or OverflowError for what `saved` does not
        give.
        """
        if saved["schema"] != 1:
            raise ValueError("another schema")
        trust = cls(max_error, str(saved["embedder"]))
        trust.labels = Labels.restored(saved["labels"])
        if float(saved["max_error"]) == max_error:
            trust.epoch, trust._attempts = int(saved["epoch"]), int(saved["attempts"])
            if trust.epoch < 1 or not 0 <= trust._attempts <= MOST_ATTEMPTS:
                raise ValueError("no epoch")
            trust.alarm = Alarm.restored(max_error, saved["alarm"])
            if saved["calibration"] is not None:
                trust.calibration = Calibration.restored(saved["calibration"])
        else:
            trust.labels.used()
        return trust
