"""How a lookup treats a semantic level, whatever that says: order, partitions, failures, counts.

The level here compares words; what the real one accepts has tests of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from cache_worlds import MODEL, Model, ask, run_of, text
from clocks import Clock

from mmctl.cache.cache import Cache
from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.meaning import Embedded, one_text
from mmctl.cache.settings import CacheSettings, ModelCache, Semantic
from mmctl.effects import Steps
from mmctl.errors import WorldError
from mmctl.inference import InferRequest


@dataclass(frozen=True)
class Said:
    entry: Entry | None = None
    similarity: float = 0.0
    gate: float | None = None
    accepted: bool = False
    probe: bool = False


class Words:
    """Texts are alike when all but one in ten of their words are the same."""

    def __init__(self, *, worth: bool = True, probes: bool = False, fails: bool = False) -> None:
        self._worth, self._probes, self._fails = worth, probes, fails
        self.kept: list[tuple[bytes, Vector, Entry]] = []
        self.embedded: list[str] = []
        self.learned: list[bool | None] = []

    def pays(self, model_ms: float, cost_ms: float) -> bool:
        return self._worth

    def embed(self, text: str) -> Steps[Embedded]:
        self.embedded.append(text)
        if self._fails:
            raise WorldError("no embedder")
        vector = np.zeros(64, "f4")
        for word in text.split():
            vector[sum(word.encode()) % 64] += 1
        return Embedded(vector / (np.linalg.norm(vector) or 1), "words")
        yield

    def look(self, partition: bytes, text: str, vector: Vector) -> Said:
        near = [(float(v @ vector), e) for p, v, e in self.kept if p == partition]
        if not near:
            return Said()
        similarity, entry = max(near, key=lambda pair: pair[0])
        return Said(entry, similarity, 0.99, similarity >= 0.9, self._probes)

    def learn(self, verdict: Any, answer: Entry) -> bool | None:
        agrees = verdict.entry and verdict.entry.outputs["run"] == answer.outputs["run"]
        self.learned.append(None if agrees is None else bool(agrees))
        return self.learned[-1]

    def store(self, partition: bytes, text: str, vector: Vector, entry: Entry) -> None:
        self.kept.append((partition, vector, entry))

    def gauges(self) -> Mapping[str, float]:
        return {"error_upper_95": 0.01}


def a_cache(words: Words | None, *, clock: Clock | None = None, **more: Any) -> Cache:
    setting = ModelCache(semantic=Semantic(input="text"), **more)
    settings = CacheSettings(others=setting)
    return Cache(tenant="t", settings=settings, meaning=lambda *_: words, clock=clock or Clock())


LONG = "where is my parcel that should have been here on the day before"


def test_a_text_that_means_the_same_gets_the_answer() -> None:
    clock, model = Clock(), Model()
    cache = a_cache(Words(), clock=clock)
    ask(cache, model, text(LONG))
    clock.now += 5
    given, note = ask(cache, model, text(LONG + " please"))
    assert run_of((given, note)) == 1
    assert (note.level, note.age_s, note.gate) == ("semantic", 5.0, 0.99)
    assert note.similarity is not None
    assert 0.9 < note.similarity < 1
    levels = cache.statistics()["m"]
    assert (levels["semantic"]["lookups"], levels["semantic"]["hits"]) == (2, 1)
    assert levels["semantic"]["error_upper_95"] == 0.01
    assert levels["semantic"]["embed_p50_ms"] > 0


def test_exact_and_normalised_come_first() -> None:
    words, model = Words(), Model()
    cache = a_cache(words, normalise="text")
    for said, level in ((LONG, "none"), (LONG, "exact"), (LONG.upper(), "normalised")):
        assert ask(cache, model, text(said))[1].level == level
    assert words.embedded == [LONG]


def test_a_semantic_answer_is_not_an_exact_one_later() -> None:
    cache, model = a_cache(Words()), Model()
    ask(cache, model, text(LONG))
    other = text(LONG + " please")
    assert [ask(cache, model, other)[1].level for _ in range(2)] == ["semantic", "semantic"]


@pytest.mark.parametrize(
    ("other", "options"),
    [
        pytest.param({"parameters": {"p": 1}}, {}, id="parameters"),
        pytest.param({}, {"tenant": "u"}, id="tenants"),
        pytest.param({}, {"identity": replace(MODEL, digest="d2")}, id="contents"),
        pytest.param({"outputs": ("run",)}, {}, id="outputs"),
    ],
)
def test_it_never_answers_across(other: dict[str, Any], options: dict[str, Any]) -> None:
    cache, model = a_cache(Words(), shared=True), Model()
    ask(cache, model, text(LONG))
    assert ask(cache, model, text(LONG + " please", **other), **options)[1].level == "none"


def said_before(*turns: str) -> InferRequest:
    """The same last message, after these."""
    inputs = {"text": np.array([LONG], object), "context": np.array(turns, object)}
    return InferRequest("m", inputs)


def test_of_conversations_what_was_said_before_counts() -> None:
    """However little of it differs, and however alike the last message is."""
    contexts = [(), ("",), ("yes",), ("yes", "no"), ("yesno",), ("yes", "no", ""), ("no", "yes")]
    cache, model = a_cache(Words()), Model()
    for turns in contexts:
        assert ask(cache, model, said_before(*turns))[1].level == "none"
    for turns in contexts:
        assert ask(cache, model, said_before(*turns))[1].level == "exact"


def test_it_does_not_answer_with_what_is_too_old() -> None:
    clock, model = Clock(), Model()
    cache = a_cache(Words(), clock=clock, ttl_s=100)
    ask(cache, model, text(LONG))
    clock.now += 120
    assert ask(cache, model, text(LONG + " please"))[1].level == "none"


def test_after_clearing_nothing_is_alike() -> None:
    cache, model = a_cache(Words()), Model()
    ask(cache, model, text(LONG))
    cache.clear("m")
    assert ask(cache, model, text(LONG + " please"))[1].level == "none"


def test_a_probe_is_computed_and_learned_from() -> None:
    words, model = Words(probes=True), Model()
    cache = a_cache(words)
    ask(cache, model, text(LONG))
    assert ask(cache, model, text(LONG + " please"))[1].level == "none"
    assert words.learned == [None, False]
    level = cache.statistics()["m"]["semantic"]
    assert (level["probes"], level["disagreements"], level["hits"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(None, id="there is none"),
        pytest.param(Words(worth=False), id="it does not pay"),
        pytest.param(Words(fails=True), id="nothing embeds"),
    ],
)
def test_without_it_the_model_answers(words: Words | None) -> None:
    cache, model = a_cache(words), Model()
    for said in (LONG, LONG + " please"):
        assert ask(cache, model, text(said))[1].level == "none"
    assert words is None or words.learned == []


def test_the_vector_is_kept_with_the_answer() -> None:
    words = Words()
    ask(a_cache(words), Model(), text(LONG))
    (_, vector, entry), *_ = words.kept
    assert entry.vector is vector


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param(text("a"), "a", id="a text"),
        pytest.param(text("é".encode()), "é", id="UTF-8"),
        pytest.param(text(b"\xff"), None, id="no UTF-8"),
        pytest.param(text("a", "b"), None, id="two texts"),
        pytest.param(text(), None, id="no text"),
        pytest.param(InferRequest("m", {"text": np.array(["a"])}), "a", id="numpy's own text"),
        pytest.param(InferRequest("m", {"text": np.array([1])}), None, id="a number"),
        pytest.param(InferRequest("m", {"x": np.array([1])}), None, id="another input"),
    ],
)
def test_only_one_text_can_be_compared(asked: InferRequest, found: str | None) -> None:
    assert one_text(asked, "text") == found
