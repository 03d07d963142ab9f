"""The gate: what it looks at, that it fits, and that what it proves holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mmctl.cache.semantic.gate import (
    Bools,
    Calibration,
    Floats,
    features_of,
    fitted,
    lines_of,
    proved,
)

TRUE_WEIGHTS = np.array([20.0, 10.0, 2.0, 0.0])


def labels(count: int, seed: int, *, noise: float = 0.0) -> tuple[Floats, Bools]:
    """Neighbours of which the nearer are more often right."""
    rng = np.random.default_rng(seed)
    best = rng.uniform(0.6, 1, count)
    features = np.column_stack(
        [best, rng.uniform(0, 0.3, count), rng.integers(1, 6, count) / 5, best - 0.05]
    )
    chance = 1 / (1 + np.exp(-(features @ TRUE_WEIGHTS - 17)))
    same = rng.random(count) < chance
    return features, np.where(rng.random(count) < noise, ~same, same)


@pytest.mark.parametrize(
    ("similarities", "same", "features"),
    [
        pytest.param([0.9], [True], (0.9, 0.05, 1.0, 0.0), id="one neighbour"),
        pytest.param([0.9, 0.8], [True, False], (0.9, 0.1, 0.5, 0.8), id="one with another answer"),
        pytest.param([0.9, 0.8], [True, True], (0.9, 0.15, 1.0, 0.8), id="none with another"),
        pytest.param(
            [0.9, 0.8, 0.7, 0.7, 0.7, 0.6],
            [True, True, True, True, True, False],
            (0.9, 0.3, 1.0, 0.8),
            id="another behind the voters",
        ),
    ],
)
def test_what_it_looks_at(
    similarities: list[float], same: list[bool], features: tuple[float, ...]
) -> None:
    assert features_of(similarities, same) == pytest.approx(features)


def test_its_chances_are_those_behind_the_labels() -> None:
    gate = fitted(*labels(4000, 0))
    assert gate is not None
    features, same = labels(4000, 1)
    scores = gate.scores(features)
    for low, high in ((0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1)):
        chosen = (scores >= low) & (scores < high)
        assert same[chosen].mean() == pytest.approx(scores[chosen].mean(), abs=0.05)


def test_where_none_was_wrong_nearer_is_better_and_where_none_was_right_there_is_no_gate() -> None:
    features, _ = labels(50, 0)
    gate = fitted(features, np.ones(50, bool))
    assert gate is not None
    assert np.argsort(gate.scores(features)).tolist() == np.argsort(features[:, 0]).tolist()
    assert fitted(features, np.zeros(50, bool)) is None


def test_labels_that_a_line_divides_do_not_break_it() -> None:
    features, _ = labels(200, 0)
    gate = fitted(features, features[:, 0] > 0.8)
    assert gate is not None
    assert np.isfinite(gate.scores(features)).all()


def test_what_is_proved_holds_in_nearly_all_worlds() -> None:
    broken = tried = 0
    for seed in range(40):
        fit, proof = labels(1500, 3 * seed), labels(1500, 3 * seed + 1)
        gate = fitted(*fit)
        assert gate is not None
        found = proved(gate, lines_of(gate, fit, 0.05, 0.95), proof, 0.05)
        if found is None:
            continue
        tried += 1
        features, same = labels(20_000, 3 * seed + 2)
        broken += (~same[gate.scores(features) >= found.line]).mean() > 0.05
    assert tried > 30
    assert broken <= 5  # 5 % of 40 are 2; more than 5 have a chance of 1.4 %


def test_what_cannot_be_held_is_not_proved() -> None:
    fit, proof = labels(1500, 0, noise=0.1), labels(1500, 1, noise=0.1)
    gate = fitted(*fit)
    assert gate is not None
    assert lines_of(gate, fit, 0.02, 0.95) == []
    assert proved(gate, [0.5, 0.4], proof, 0.02) is None


def test_too_few_labels_prove_nothing() -> None:
    fit = labels(60, 0)
    gate = fitted(*fit)
    assert gate is not None
    assert lines_of(gate, fit, 0.02, 0.95) == []


def test_lines_stop_at_the_first_that_is_not_proved() -> None:
    fit, proof = labels(3000, 0), labels(3000, 1)
    gate = fitted(*fit)
    assert gate is not None
    lines = lines_of(gate, fit, 0.05, 0.95)
    first = proved(gate, lines[:1], proof, 0.05)
    assert first is not None
    assert first.errors <= 0.05 * first.count
    assert proved(gate, [0.0, *lines], proof, 0.05) is None


def test_it_is_saved_as_plain_data() -> None:
    fit = labels(3000, 0)
    gate = fitted(*fit)
    assert gate is not None
    found = proved(gate, lines_of(gate, fit, 0.05, 0.95), labels(3000, 1), 0.05)
    assert found is not None
    assert Calibration.restored(json.loads(json.dumps(found.saved()))) == found
