"""The index: exact, apart by partition, bounded, and forgetting in time."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from clocks import Clock

from mmctl.cache.envelope import Vector
from mmctl.cache.semantic.ring import ENTRIES, Ring


def vectors(count: int, dimensions: int = 16, seed: int = 0) -> Vector:
    """Near to each other, so that there are neighbours."""
    drawn = np.random.default_rng(seed).normal(1.0, 0.5, (count, dimensions))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_it_finds_what_a_full_comparison_finds() -> None:
    ring, known = Ring[int](500, Clock()), vectors(500)
    for number, vector in enumerate(known):
        ring.add(b"a", vector, number, 60)
    for asked in vectors(50, seed=1):
        cosines = known @ asked
        best = np.argsort(-cosines)[:8]
        best = best[cosines[best] >= 0.5]
        found = ring.search(b"a", asked, 8)
        assert [near.item for near in found] == best.tolist()
        assert [near.similarity for near in found] == pytest.approx(cosines[best].tolist())


def test_what_is_far_is_no_neighbour() -> None:
    ring = Ring[str](4, Clock())
    ring.add(b"a", np.array([1, 0], np.float32), "x", 60)
    assert ring.search(b"a", np.array([0.4, 0.9], np.float32), 8) == []


def test_partitions_never_meet() -> None:
    ring, known = Ring[str](10, Clock()), vectors(2)
    ring.add(b"a", known[0], "a", 60)
    ring.add(b"b", known[1], "b", 60)
    assert [near.item for near in ring.search(b"a", known[1], 8)] == ["a"]
    assert ring.search(b"c", known[1], 8) == []


def test_the_nearest_of_others_hide_nothing() -> None:
    ring, known = Ring[str](100, Clock()), vectors(50)
    ring.add(b"a", known[0], "mine", 60)
    for vector in known:
        ring.add(b"b", vector, "theirs", 60)
    assert [near.item for near in ring.search(b"a", known[1], 1)] == ["mine"]


def test_an_entry_that_is_read_every_second_still_ends() -> None:
    clock, known = Clock(), vectors(1)
    ring = Ring[str](10, clock)
    ring.add(b"a", known[0], "x", 1800)
    for _ in range(1799):
        clock.now += 1
        assert ring.search(b"a", known[0], 1)
    clock.now += 1
    assert ring.search(b"a", known[0], 1) == []


def test_the_oldest_makes_room() -> None:
    ring, known = Ring[int](3, Clock()), vectors(5)
    for number, vector in enumerate(known):
        ring.add(b"a", vector, number, 60)
    assert len(ring) == 3
    assert {near.item for near in ring.search(b"a", known[4], 8)} == {2, 3, 4}


def test_partitions_that_are_gone_leave_nothing_behind() -> None:
    ring, known = Ring[int](4, Clock()), vectors(1)
    for number in range(100):
        ring.add(str(number).encode(), known[0], number, 60)
    assert [near.item for near in ring.search(b"98", known[0], 8)] == [98]
    assert ring.search(b"5", known[0], 8) == []
    assert len(ring._names) <= 5


def test_vectors_of_several_lengths_live_side_by_side() -> None:
    ring, known = Ring[str](4, Clock()), {size: vectors(1, size)[0] for size in (16, 32, 8)}
    for size, vector in known.items():
        ring.add(str(size).encode(), vector, f"of {size}", 60)
    for size, vector in known.items():
        (near,) = ring.search(str(size).encode(), vector, 8)
        assert near.item == f"of {size}"
        assert near.similarity == pytest.approx(1)


# ------------------------------------------------------------- more than can be compared one by one

MANY = ENTRIES + 2_000


def clustered(count: int, seed: int = 0) -> Vector:
    """[count, 32] in clusters of some ten, as texts lie: a neighbour of each is very near."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(size=(1_200, 32))
    drawn = centers[rng.integers(len(centers), size=count)] + rng.normal(size=(count, 32)) * 0.2
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def large() -> tuple[Ring[int], Vector, Clock]:
    """Full, and then half of it written over."""
    clock = Clock()
    ring, known = Ring[int](MANY, clock), clustered(MANY + MANY // 2)
    for number, vector in enumerate(known):
        ring.add(b"ab"[number % 2 :][:1], vector, number, 60)
    return ring, known, clock


def test_a_large_ring_finds_nearly_all_that_comparing_all_finds(
    large: tuple[Ring[int], Vector, Clock],
) -> None:
    ring, known, _ = large
    alive = np.arange(len(known) - MANY, len(known))
    mine = alive[alive % 2 == 0]
    found = 0
    for asked in clustered(200, seed=1):
        cosines = known[mine] @ asked
        near = ring.search(b"a", asked, 8)
        assert all(n.item in mine for n in near)
        assert [n.similarity for n in near] == pytest.approx([known[n.item] @ asked for n in near])
        assert [n.similarity for n in near] == sorted((n.similarity for n in near), reverse=True)
        found += bool(near) and near[0].item == mine[np.argmax(cosines)]
    assert found >= 0.95 * 200


def test_in_a_large_ring_what_has_ended_is_never_found_and_hides_nothing() -> None:
    clock, known = Clock(), clustered(3_000)
    ring = Ring[int](MANY, clock)
    for number, vector in enumerate(known):
        ring.add(b"a", vector, number, 100 if number % 10 == 0 else 50)
    clock.now += 60
    for asked in known[::10][:50]:
        near = ring.search(b"a", asked, 4)
        assert near[0].similarity == pytest.approx(1, abs=1e-5)
        assert all(n.item % 10 == 0 for n in near)
    clock.now += 60
    assert ring.search(b"a", known[0], 4) == []
    ring.add(b"a", known[0], -1, 50)
    assert [n.item for n in ring.search(b"a", known[0], 4)] == [-1]


def test_without_usearch_a_large_ring_compares_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    ring, known = Ring[int](MANY, Clock()), vectors(20)
    for number, vector in enumerate(known):
        ring.add(b"a", vector, number, 60)
    assert [near.item for near in ring.search(b"a", known[3], 1)] == [3]
