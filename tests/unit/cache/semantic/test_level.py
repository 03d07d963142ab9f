"""A level: what it gives, what it learns from, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest
from clocks import Clock
from semantic_streams import P, a_level, asked, entry, label_of, points

from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.semantic.level import Kept, Level, Verdict
from mmctl.cache.semantic.ring import Ring
from mmctl.cache.settings import Semantic

VERIFIED = {"verified": {"max_error": 0.05}}


def at(cosine: float) -> Vector:
    """A vector whose cosine with at(1) is this."""
    return np.array([cosine, np.sqrt(1 - cosine**2)], np.float32)


def of_text(guard: bool | None = None) -> Level:
    return Level(Semantic(input="text", guard=guard), Ring(clock=lambda: 0.0), clock=lambda: 0.0)


@pytest.mark.parametrize(("cosine", "accepted"), [(0.96, True), (0.94, False), (0.3, False)])
def test_static_is_the_cosine(cosine: float, accepted: bool) -> None:
    level = a_level({"static": 0.95})
    level.store(P, "", at(1), entry("a"))
    verdict = level.look(P, "", at(cosine))
    assert (verdict.accepted, verdict.probe, verdict.gate) == (accepted, False, None)
    if cosine > 0.5:
        assert verdict.similarity == pytest.approx(cosine)
        assert label_of(verdict) == "a"


def test_off_never_gives_anything() -> None:
    level = a_level("off")
    level.store(P, "", at(1), entry("a"))
    assert level.look(P, "", at(1)).entry is None


def test_the_guard_looks_at_free_text() -> None:
    level = of_text()
    level.store(P, "refund order 1234", at(1), entry("a"))
    assert not level.look(P, "refund order 1235", at(0.99)).accepted
    assert level.look(P, "please refund order 1234", at(0.99)).accepted


def test_the_guard_lets_a_further_one_through_that_agrees() -> None:
    level = of_text()
    level.store(P, "refund order 1234", at(1), entry("a"))
    level.store(P, "refund order 1235", at(0.99), entry("b"))
    assert label_of(level.look(P, "refund order 1235, please", at(1))) == "b"


@pytest.mark.parametrize(("guard", "output"), [(False, None), (None, "label")])
def test_without_the_guard_only_the_cosine_counts(guard: bool | None, output: str | None) -> None:
    semantic = Semantic(input="text", guard=guard, output=output)
    level = Level(semantic, Ring(clock=lambda: 0.0), clock=lambda: 0.0)
    level.store(P, "refund order 1234", at(1), entry("a"))
    assert level.look(P, "refund order 1235", at(0.99)).accepted


def test_what_was_written_half_an_hour_ago_is_gone_however_often_it_was_read() -> None:
    clock = Clock()
    ring: Ring[Kept] = Ring(clock=clock)
    level = Level(Semantic(input="text"), ring, clock=clock)
    level.store(P, "a", at(1), entry("a"))
    clock.now += 1799
    assert level.look(P, "a", at(1)).accepted
    clock.now += 1
    assert level.look(P, "a", at(1)).entry is None


def test_levels_of_one_ring_do_not_meet() -> None:
    ring: Ring[Kept] = Ring(clock=lambda: 0.0)
    one, other = (a_level({"static": 0.5}, ring=ring) for _ in range(2))
    one.store(b"one", "", at(1), entry("a"))
    assert other.look(b"other", "", at(1)).entry is None


def test_static_learns_nothing() -> None:
    level = a_level({"static": 0.95})
    level.store(P, "", at(1), entry("a"))
    assert level.learn(level.look(P, "", at(0.9)), entry("a")) is None
    assert level.gauges() == {}


def test_verified_says_whether_the_nearest_was_right() -> None:
    level = a_level(VERIFIED)
    assert level.learn(level.look(P, "", at(1)), entry("a")) is None
    level.store(P, "", at(1), entry("a"))
    for label, agrees in (("a", True), ("b", False)):
        assert level.learn(level.look(P, "", at(0.9)), entry(label)) is agrees


def test_before_a_proof_the_static_rule_holds_and_nothing_as_near_disagrees() -> None:
    level = a_level(VERIFIED)
    level.store(P, "", at(1), entry("a"))
    assert level.look(P, "", at(0.96)).accepted
    assert not level.look(P, "", at(0.94)).accepted
    level.store(P, "", at(0.99), entry("b"))
    assert not level.look(P, "", at(0.999)).accepted


def test_before_a_proof_nothing_is_given_until_probes_have_kept_the_promise() -> None:
    level = a_level(VERIFIED)
    level.store(P, "", at(1), entry("a"))
    for number in range(40):
        verdict = level.look(P, "", at(0.96))
        assert verdict.accepted
        assert verdict.probe or number >= 19  # 1 of 20 would be 5 %
        if verdict.probe:
            level.learn(verdict, entry("a"))
    assert not all(level.look(P, "", at(0.96)).probe for _ in range(40))
    while not (verdict := level.look(P, "", at(0.96))).probe:
        pass
    level.learn(verdict, entry("b"))
    assert all(level.look(P, "", at(0.96)).probe for _ in range(40))


def test_it_earns_its_gate_and_keeps_its_promise() -> None:
    level = a_level(VERIFIED)
    assert level.trust is not None
    learning = asked(level, points(800))
    assert level.trust.calibration is not None
    assert level.trust.calibration.error_upper <= 0.05
    serving = asked(level, points(1200))
    assert serving.hits > 0.8 * serving.lookups > learning.hits
    assert serving.wrong <= 0.05 * serving.hits
    assert 0.02 < serving.probes / (serving.hits + serving.probes) < 0.09
    assert 0 < level.gauges()["error_upper_95"] <= 0.05


def test_answers_that_are_noise_earn_nothing() -> None:
    level = a_level(VERIFIED)
    counted = asked(level, points(1000, wrong=0.5))
    assert level.trust is not None
    assert level.trust.calibration is None
    assert counted.hits == 0 or counted.hits < 0.05 * counted.lookups


def test_a_model_that_changes_its_mind_is_found_out() -> None:
    level = a_level(VERIFIED)
    asked(level, points(800))
    assert level.trust is not None
    assert level.trust.epoch == 1
    asked(level, ((vector, label + 100) for vector, label in points(2000)))
    assert level.trust.epoch > 1


def test_outputs_within_reach_are_the_same() -> None:
    semantic = Semantic.model_validate(
        {"input": "text", "output": "y", "policy": VERIFIED, "within": 0.1}
    )
    level = Level(semantic, Ring(clock=lambda: 0.0), clock=lambda: 0.0)

    def numbers(*values: float) -> Entry:
        return Entry({"y": np.array(values, np.float32)}, "m", "1", 0, 1e9)

    level.store(P, "", at(1), numbers(1, 2))
    for answer, same in ((numbers(1.05, 2), True), (numbers(1.2, 2), False), (numbers(1), False)):
        assert level.learn(level.look(P, "", at(0.9)), answer) is same


def test_a_request_is_one_label_however_often_it_is_asked_again() -> None:
    level = a_level(VERIFIED)
    asked(level, points(200))
    assert level.trust is not None
    assert len(level.trust.labels) == 200


def test_a_verdict_is_of_one_look() -> None:
    level = a_level({"static": 0.95})
    verdict = level.look(P, "", at(1))
    assert isinstance(verdict, Verdict)
    assert verdict.asked[0] == P
