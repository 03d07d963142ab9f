"""Which requests go to a candidate: always the same, in proportion, and when its share is asked."""

from __future__ import annotations

import numpy as np
import pytest
from clocks import Clock

from mmctl.client.canary import ASK_AGAIN_S, Canaries, part_of
from mmctl.client.description import Candidacy
from mmctl.inference import InferRequest


def request(
    value: float = 0, *, model: str = "m", version: str = "", name: str = ""
) -> InferRequest:
    array = np.array([[value]], np.float32)
    return InferRequest(model, {"x": array}, version=version, request_id=name)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def canaries(clock: Clock) -> Canaries:
    return Canaries(clock)


@pytest.mark.parametrize("share", [0, 0.5, 10, 50, 100])
def test_the_candidate_gets_its_share(canaries: Canaries, share: float) -> None:
    canaries.learn("m", Candidacy(share))
    taken = sum(canaries.candidate_for(request(), f"user-{n}") is not None for n in range(20_000))
    assert taken / 200 == pytest.approx(share, abs=1)


def test_a_larger_share_keeps_the_keys_of_a_smaller_one(canaries: Canaries) -> None:
    def taken(share: float) -> set[int]:
        canaries.learn("m", Candidacy(share))
        return {n for n in range(500) if canaries.candidate_for(request(), str(n))}

    assert taken(10) < taken(40)


def test_a_key_goes_the_same_way_in_every_process() -> None:
    assert [part_of(key) for key in ("a", b"a", "user-1")] == [3343, 3343, 3768]


def test_without_a_key_the_id_decides_and_without_one_the_inputs(canaries: Canaries) -> None:
    canaries.learn("m", Candidacy(50))

    def goes(value: float, name: str = "", key: str = "") -> bool:
        return canaries.candidate_for(request(value, name=name), key) is not None

    assert len({goes(n, name="same") for n in range(30)}) == 1
    assert len({goes(n, name=str(n), key="same") for n in range(30)}) == 1
    assert {goes(n) for n in range(30)} == {True, False}
    assert [goes(n) for n in range(30)] == [goes(n) for n in range(30)]


def test_inputs_of_other_shape_or_type_are_others(canaries: Canaries) -> None:
    canaries.learn("m", Candidacy(50))
    values = [np.zeros((1, n), kind) for n in range(1, 20) for kind in (np.float32, np.int32)]
    ways = {canaries.candidate_for(InferRequest("m", {"x": v}), "") is None for v in values}
    assert ways == {True, False}


def test_the_share_is_asked_for_at_first_and_after_some_seconds(
    canaries: Canaries, clock: Clock
) -> None:
    assert [canaries.asks(request()) for _ in range(3)] == [True, False, False]
    clock.now += ASK_AGAIN_S - 0.1
    assert not canaries.asks(request())
    clock.now += 0.2
    assert [canaries.asks(request()) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("asked", [request(version="1"), request(model="m__next")])
def test_nothing_is_asked_for_one_version_or_for_a_candidate(
    canaries: Canaries, asked: InferRequest
) -> None:
    assert not canaries.asks(asked)
