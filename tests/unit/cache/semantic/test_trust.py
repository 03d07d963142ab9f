"""What was learned: kept for 30 days, saved as plain data, and believed for one promise alone."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from semantic_streams import a_level, asked, entry, points

from mmctl.cache.keys import Identity
from mmctl.cache.meaning import Embedded
from mmctl.cache.semantic.labels import LABELS, LASTS_S, Labels
from mmctl.cache.semantic.level import Level
from mmctl.cache.semantic.levels import Levels, load, save
from mmctl.cache.semantic.ring import Ring
from mmctl.cache.semantic.trust import Trust
from mmctl.cache.settings import Semantic
from mmctl.effects import Steps, by_type, drive
from mmctl.errors import InputError

MODEL = Identity("m", "1", "d1")
POLICY = {"verified": {"max_error": 0.05}}
SEMANTIC = Semantic.model_validate({"input": "text", "output": "label", "policy": POLICY})
NEAR = (0.9, 0.1, 1.0, 0.8)


@cache
def _learned() -> str:
    level = a_level(POLICY)
    asked(level, points(800))
    assert level.trust is not None
    assert level.trust.calibration is not None
    return json.dumps(level.trust.saved())


def proved() -> Trust:
    return Trust.restored(json.loads(_learned()), 0.05)


def test_every_second_label_proves_and_none_does_twice() -> None:
    labels = Labels()
    for _ in range(10):
        labels.add(NEAR, True, 0.0)
    fit, proof = labels.split(10)
    assert (len(fit[1]), len(proof[1])) == (5, 5)
    labels.used()
    fit, proof = labels.split(10)
    assert (len(fit[1]), len(proof[1])) == (10, 0)


def test_what_was_far_from_all_teaches_nothing() -> None:
    labels = Labels()
    labels.add(None, False, 0.0)
    labels.add((0.59, 0.1, 1.0, 0.5), False, 0.0)
    fit, proof = labels.split(10)
    assert (len(fit[1]), len(proof[1])) == (0, 0)


def test_labels_last_thirty_days_and_are_bounded() -> None:
    labels = Labels()
    labels.add(NEAR, True, 0.0)
    labels.add(NEAR, True, LASTS_S + 1)
    assert len(labels) == 1
    for _ in range(LABELS + 10):
        labels.add(NEAR, True, LASTS_S + 2)
    assert len(labels) == LABELS


def test_it_is_saved_as_plain_data() -> None:
    trust = proved()
    again = Trust.restored(json.loads(json.dumps(trust.saved())), 0.05)
    assert again.calibration == trust.calibration
    assert again.saved() == trust.saved()


def test_a_proof_for_another_promise_is_none() -> None:
    again = Trust.restored(proved().saved(), 0.01)
    assert again.calibration is None
    assert len(again.labels) > 0
    assert len(again.labels.split(LABELS)[1][1]) == 0


def test_an_alarm_begins_a_new_epoch_without_a_gate() -> None:
    trust = proved()
    for _ in range(20):
        trust.learn(NEAR, False, 0.0, probe=True)
        if trust.epoch == 2:
            break
    assert (trust.epoch, trust.calibration) == (2, None)
    assert len(trust.labels.split(LABELS)[1][1]) == 0


def test_a_level_begins_with_what_was_learned_of_the_same_content(tmp_path: Path) -> None:
    save(tmp_path, MODEL, SEMANTIC, proved())
    levels = Levels(folder=tmp_path)
    for identity, knows in (
        (MODEL, True),
        (Identity("m", "1", "d2"), False),
        (Identity("m", "2", "d1"), False),
        (Identity("n", "1", "d1"), False),
    ):
        trust = levels(identity, SEMANTIC).trust
        assert trust is not None
        assert (trust.calibration is not None) is knows


@pytest.mark.parametrize(
    "change",
    [{"output": "topic"}, {"input": "question"}, {"within": 0.1}, {"guard": True}],
    ids=lambda change: next(iter(change)),
)
def test_a_proof_for_another_comparison_of_answers_is_none(
    tmp_path: Path, change: dict[str, object]
) -> None:
    save(tmp_path, MODEL, SEMANTIC, proved())
    other = SEMANTIC.model_copy(update=change)
    trust = Levels(folder=tmp_path)(MODEL, other).trust
    assert trust is not None
    assert (trust.calibration, len(trust.labels)) == (None, 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"learned": {}}', "[" * 100_000])
def test_a_file_that_is_none_is_warned_of_and_costs_no_answer(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(InputError, match=r"m\.json"):
        load(tmp_path, MODEL, SEMANTIC)
    with pytest.warns(RuntimeWarning, match=r"m\.json` is no calibration"):
        level = Levels(folder=tmp_path)(MODEL, SEMANTIC)
    assert level.trust is not None
    assert level.trust.calibration is None


@pytest.mark.parametrize("place", ["", "calibration", "alarm"])
def test_whatever_is_wrong_with_a_part_of_it_costs_no_answer(place: str) -> None:
    """Refused or taken: the level goes on."""
    for name in proved().saved()[place] if place else proved().saved():
        for other in (None, "x", -1, 1e308, float("inf"), float("nan"), [], [1], {}, 10**400):
            wrong = json.loads(_learned())
            (wrong[place] if place else wrong)[name] = other
            level = a_level(POLICY)
            with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
                level.trust = Trust.restored(wrong, 0.05)
            asked(level, points(40, seed=1))


class Changing:
    """An embedder whose model is exchanged."""

    digest = "old"

    def embed(self, text: str) -> Steps[Embedded]:
        return Embedded(np.array([1, 0], np.float32), self.digest)
        yield


def test_with_another_embedder_all_begins_anew() -> None:
    changing = Changing()
    level = Level(SEMANTIC, Ring(), changing, trust=proved())
    drive(level.embed("a text"), by_type({}))
    assert level.trust is not None
    assert level.trust.calibration is not None
    verdict = level.look(b"", "a text", np.array([1, 0], np.float32))
    changing.digest = "new"
    drive(level.embed("a text"), by_type({}))
    level.learn(verdict, entry("an answer"))
    assert (level.trust.calibration, len(level.trust.labels)) == (None, 0)
