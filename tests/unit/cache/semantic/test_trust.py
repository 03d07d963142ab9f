"""What was learned: kept for 30 days, saved as plain data, and believed for one promise alone."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from semantic_streams import a_level, asked, points

from mmctl.cache.keys import Identity
from mmctl.cache.semantic.labels import LABELS, LASTS_S, Labels
from mmctl.cache.semantic.levels import Levels, load, save
from mmctl.cache.semantic.trust import Trust
from mmctl.cache.settings import Semantic
from mmctl.errors import InputError

MODEL = Identity("m", "1", "d1")
NEAR = (0.9, 0.1, 1.0, 0.8)


@cache
def _learned() -> str:
    level = a_level({"verified": {"max_error": 0.05}})
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
    save(tmp_path, MODEL, proved())
    semantic = Semantic.model_validate(
        {"input": "text", "output": "label", "policy": {"verified": {"max_error": 0.05}}}
    )
    levels = Levels(folder=tmp_path)
    for identity, knows in (
        (MODEL, True),
        (Identity("m", "1", "d2"), False),
        (Identity("m", "2", "d1"), False),
        (Identity("n", "1", "d1"), False),
    ):
        trust = levels(identity, semantic).trust
        assert trust is not None
        assert (trust.calibration is not None) is knows


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": "m", "version": "1", "digest": "d1", "learned": {}}']
)
def test_a_file_that_is_none_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(InputError, match=r"m\.json"):
        load(tmp_path, MODEL, 0.05)
