"""The index: exact, apart by partition, bounded, and forgetting in time."""

from __future__ import annotations

import numpy as np
import pytest
from cache_worlds import Clock

from mmctl.cache.envelope import Vector
from mmctl.cache.semantic.ring import Ring


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
