"""What a level has learned belongs to its embedder, and processes tell it each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from semantic_streams import a_level, asked, entry, points

from mmctl.cache.meaning import Embedded
from mmctl.cache.semantic.level import NEWS, Level
from mmctl.cache.semantic.ring import Ring
from mmctl.cache.settings import Semantic
from mmctl.effects import Steps, by_type, drive

POLICY = {"verified": {"max_error": 0.05}}


def a_verified_level(texts: int = 0, embedder: str = "e", seed: int = 0) -> Level:
    level = a_level(POLICY, seed=seed)
    assert level.trust is not None
    level.trust.embedder = embedder
    asked(level, points(texts, seed=seed))
    return level


def told(level: Level, others: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """As it comes through a store."""
    found = level.exchange(others)
    return None if found is None else json.loads(json.dumps(found))


def is_proved(level: Level) -> bool:
    return level.trust is not None and level.trust.calibration is not None


@pytest.fixture(scope="module")
def proved() -> dict[str, Any]:
    level = a_verified_level(800)
    assert is_proved(level)
    found = told(level)
    assert found is not None
    return found


def test_a_level_begins_with_what_others_have_proved(proved: dict[str, Any]) -> None:
    level = a_verified_level()
    assert told(level, proved) is None
    assert is_proved(level)
    assert asked(level, points(200, seed=1)).hits > 50


def test_who_knows_more_tells_it(proved: dict[str, Any]) -> None:
    level = a_verified_level(800)
    few = told(a_verified_level(250))
    assert few is not None
    assert few["calibration"] is None
    assert told(level, few) == proved


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"schema": 2}, id="another form"),
        pytest.param({"schema": 1, "embedder": "e", "labels": 3}, id="no labels"),
        pytest.param({"schema": 1, "embedder": "e", "labels": [[1, 2]]}, id="labels cut short"),
    ],
)
def test_what_no_level_has_told_is_left_aside(others: dict[str, Any]) -> None:
    level = a_verified_level(250)
    assert told(level, others) is not None
    assert not is_proved(level)


@pytest.mark.parametrize("place", ["", "calibration", "alarm"])
def test_whatever_is_wrong_with_a_part_of_it_costs_no_answer(
    proved: dict[str, Any], place: str
) -> None:
    """Taken or not: the level goes on."""
    part = proved[place] if place else proved
    for name in part:
        for other in (None, "x", -1, 1e308, float("inf"), float("nan"), [], [1], {}, 10**400):
            wrong = json.loads(json.dumps(proved))
            (wrong[place] if place else wrong)[name] = other
            level = a_verified_level()
            level.exchange(wrong)
            asked(level, points(40, seed=1))


def test_what_was_learned_of_another_embedder_is_not_taken(proved: dict[str, Any]) -> None:
    level = a_verified_level(embedder="another")
    assert told(level, proved) is None
    assert not is_proved(level)


def test_a_promise_that_was_broken_is_believed_by_nobody(proved: dict[str, Any]) -> None:
    """The one that saw it does not take the proof back from the store; others take its word."""
    seeing, other = a_verified_level(), a_verified_level()
    told(seeing, proved)
    told(other, proved)
    trust = seeing.trust
    assert trust is not None
    while trust.calibration is not None:
        trust.learn((0.99, 0.5, 1.0, 0.9), False, 0.0, probe=True)
    assert seeing.has_news
    news = told(seeing, proved)
    assert news is not None
    assert not is_proved(seeing)
    told(other, news)
    assert not is_proved(other)


def test_who_has_a_proof_keeps_what_its_probes_have_seen(proved: dict[str, Any]) -> None:
    level = a_verified_level(800, seed=3)
    assert is_proved(level)
    trust = level.trust
    assert told(level, {**proved, "labels": proved["labels"] * 5}) is None
    assert level.trust is trust


def test_news_are_a_proof_and_many_labels() -> None:
    level = a_verified_level()
    assert not level.has_news
    asked(level, points(NEWS - 1))
    assert not level.has_news
    asked(level, points(1, seed=1))
    assert level.has_news
    told(level)
    assert not level.has_news
    asked(level, points(600, seed=2))
    assert is_proved(level)
    assert level.has_news


class Changing:
    """An embedder whose model is exchanged."""

    digest = "old"

    def embed(self, text: str) -> Steps[Embedded]:
        return Embedded(np.array([1, 0], np.float32), self.digest)
        yield


def test_with_another_embedder_all_begins_anew(proved: dict[str, Any]) -> None:
    semantic = Semantic.model_validate({"input": "text", "output": "label", "policy": POLICY})
    changing = Changing()
    level = Level(semantic, Ring(), changing)
    drive(level.embed("a text"), by_type({}))
    told(level, {**proved, "embedder": "old"})
    drive(level.embed("a text"), by_type({}))
    assert is_proved(level)
    verdict = level.look(b"", "a text", np.array([1, 0], np.float32))
    changing.digest = "new"
    drive(level.embed("a text"), by_type({}))
    assert not is_proved(level)
    level.learn(verdict, entry("an answer"))
    assert level.trust is not None
    assert len(level.trust.labels) == 0
