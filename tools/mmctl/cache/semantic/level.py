"""The semantic level of one model with one embedder: looks, learns from what the model answers
after all, and keeps. Nothing outside is touched but by what `embed` yields.
"""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mmctl.cache import meaning
from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.meaning import Embedded
from mmctl.cache.semantic.answers import Compare, by_all, by_output
from mmctl.cache.semantic.embedders import Embedder
from mmctl.cache.semantic.gate import NEIGHBOURS, VOTERS, features_of
from mmctl.cache.semantic.guard import Facts, agree, facts_of
from mmctl.cache.semantic.labels import NEAR, Label, Question
from mmctl.cache.semantic.profit import Profit
from mmctl.cache.semantic.ring import Near, Ring
from mmctl.cache.semantic.trust import Trust
from mmctl.cache.settings import OFF, Semantic, Static, VerifiedPolicy
from mmctl.effects import Steps
from mmctl.errors import InputError, MmctlError

PROBES = 0.05
"""The share of hits that are computed nevertheless, once a gate is proved."""
PROBES_BEFORE = 0.5
"""The same before, where the static rule may answer: what lies so near is what a proof needs."""
ASKED_AGAIN = 2
"""Texts that are looked up again for each that is learned from, while no gate is proved."""
REST_S = 5.0
"""What could not embed is left alone for so long."""

Features = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer, and what the guard needs of its text."""

    entry: Entry
    facts: Facts | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What the level says of a text; see meaning.Verdict. `features` are None where nothing is
    near; `asked` is the partition and the vector.
    """

    asked: tuple[bytes, Vector]
    entry: Entry | None = None
    similarity: float = 0.0
    gate: float | None = None
    accepted: bool = False
    probe: bool = False
    features: Features | None = None
    trust: Trust | None = None
    """What said so: what comes of it is for this to learn."""


class Level:
    """For any number of threads. `ring` may be one that other levels use too: a partition is of
    one model. `compare` says whether two answers are the same, where `semantic` cannot; `trust`
    is what was learned before.
    """

    def __init__(
        self,
        semantic: Semantic,
        ring: Ring[Kept],
        embedder: Embedder | None = None,
        *,
        trust: Trust | None = None,
        compare: Compare | None = None,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] | None = None,
    ) -> None:
        """`clock` gives Unix seconds, `chance` a number from 0 to 1, to draw probes by."""
        self._semantic, self._ring, self._embedder = semantic, ring, embedder
        self._clock = clock
        self._chance = chance or random.Random().random
        self._lock = threading.Lock()
        self._profit = Profit()
        self._rests_until = 0.0
        self._warned = False
        self._same = compare or (
            by_output(semantic.output, semantic.within) if semantic.output else by_all
        )
        policy = semantic.policy
        self._threshold = policy.static if isinstance(policy, Static) else Static().static
        self.trust = None
        if isinstance(policy, VerifiedPolicy):
            self.trust = trust or Trust(policy.verified.max_error)

    def pays(self, model_ms: float, cost_ms: float) -> bool:
        with self._lock:
            return self._clock() >= self._rests_until and self._profit.pays(model_ms, cost_ms)

    def embed(self, text: str) -> Steps[Embedded]:
        assert self._embedder is not None
        try:
            embedded = yield from self._embedder.embed(text)
        except MmctlError as error:
            self._rests_until = self._clock() + REST_S
            if isinstance(error, InputError) and not self._warned:
                self._warned = True
                warnings.warn(
                    f"no answer is given by meaning, for want of vectors: {error.message}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            raise
        self._notice(embedded.embedder)
        return embedded

    def _notice(self, embedder: str) -> None:
        """What was learned of the vectors of another embedder says nothing of these."""
        with self._lock:
            if self.trust is None or self.trust.embedder == embedder:
                return
            if self.trust.embedder:
                self.trust = Trust(self.trust.max_error)
            self.trust.embedder = embedder

    def look(self, partition: bytes, text: str, vector: Vector) -> Verdict:
        near = self._ring.search(partition, vector, NEIGHBOURS)
        facts = facts_of(text) if self._semantic.guards else None
        asked = partition, vector
        trust = self.trust
        if not near or self._semantic.policy == OFF:
            verdict = Verdict(asked, trust=trust)
        elif trust is None:
            verdict = self._static(asked, near, facts)
        else:
            verdict = self._verified(trust, asked, near, facts)
        if verdict.accepted and not verdict.probe:
            self._count(saved=True)
        return verdict

    def _static(
        self, asked: tuple[bytes, Vector], near: list[Near[Kept]], facts: Facts | None
    ) -> Verdict:
        """The nearest that the guard lets through."""
        for similarity, kept in near:
            if similarity < self._threshold:
                break
            if _agree(facts, kept):
                return Verdict(asked, kept.entry, similarity, accepted=True)
        return Verdict(asked, near[0].item.entry, near[0].similarity)

    def _verified(
        self, trust: Trust, asked: tuple[bytes, Vector], near: list[Near[Kept]], facts: Facts | None
    ) -> Verdict:
        similarity, kept = near[0]
        features, same = self._features(near)
        with self._lock:
            gate = trust.chance(features)
            if gate is not None:
                accepted, probes = trust.accepts(gate), PROBES
            else:
                accepted = self._is_static(near, same)
                probes = PROBES_BEFORE if trust.trusts_static else 1.0
        accepted = accepted and _agree(facts, kept)
        probe = accepted and self._chance() < probes
        return Verdict(asked, kept.entry, similarity, gate, accepted, probe, features, trust)

    def _is_static(self, near: list[Near[Kept]], same: list[bool]) -> bool:
        """Near enough without a gate, and nothing as near has another answer."""
        return near[0].similarity >= self._threshold and all(
            is_same
            for one, is_same in zip(near[:VOTERS], same, strict=False)
            if one.similarity >= self._threshold
        )

    def _features(self, near: list[Near[Kept]]) -> tuple[Features, list[bool]]:
        first = near[0].item.entry
        same = [True, *(self._same(first, other.item.entry) for other in near[1:])]
        return features_of([one.similarity for one in near], same), same

    def learn(self, verdict: meaning.Verdict, answer: Entry) -> bool | None:
        assert isinstance(verdict, Verdict)  # one of its own
        trust = self.trust
        if trust is None:
            self._count(saved=False)
            return None
        same = None if verdict.entry is None else self._same(verdict.entry, answer)
        if verdict.trust is not trust:
            return same
        with self._lock:
            learns = trust.calibration is None
            again = trust.labels.to_ask_again(ASKED_AGAIN) if learns else []
        for label, known in again:
            self._ask_again(label, known)
        question = Question(*verdict.asked, answer) if learns else None
        with self._lock:
            trust.learn(verdict.features, bool(same), self._clock(), question, probe=verdict.probe)
        # while it learns, what a gate might have saved speaks for going on
        self._count(saved=learns and bool(same) and verdict.similarity >= NEAR)
        return same

    def _ask_again(self, label: Label, question: Question) -> None:
        """Against all that is kept now but its own answer."""
        near = [
            one
            for one in self._ring.search(question.partition, question.vector, NEIGHBOURS + 1)
            if one.item.entry.outputs is not question.answer.outputs
        ][:NEIGHBOURS]
        if near:
            features, _ = self._features(near)
            same = self._same(near[0].item.entry, question.answer)
            with self._lock:
                label.features, label.same = features, same

    def store(self, partition: bytes, text: str, vector: Vector, entry: Entry) -> None:
        facts = facts_of(text) if self._semantic.guards else None
        self._ring.add(partition, vector, Kept(entry, facts), self._semantic.ttl_s)

    def gauges(self) -> Mapping[str, float]:
        with self._lock:
            bound = None if self.trust is None else self.trust.error_upper
        return {} if bound is None else {"error_upper_95": bound}

    def _count(self, *, saved: bool) -> None:
        with self._lock:
            self._profit.add(saved)


def _agree(facts: Facts | None, kept: Kept) -> bool:
    return facts is None or kept.facts is None or agree(facts, kept.facts)
