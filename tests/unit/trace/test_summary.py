"""Many traced requests, one row a node."""

from __future__ import annotations

import pytest

from mmctl.quantiles import quantile
from mmctl.trace.critical_path import Change, Edges, Kind
from mmctl.trace.spans import Compute, Span
from mmctl.trace.summary import saved, summarise

MS = 1_000_000
EDGES: Edges = {"p": {"a": frozenset(), "b": frozenset(), "c": frozenset({"a", "b"})}}


def leaf(model: str, start: int, compute: int, end: int) -> Span:
    times = Compute(compute * MS, compute * MS, end * MS, end * MS)
    return Span(model, start * MS, end * MS, compute=times)


def request(a: int, b: int) -> Span:
    """`a` and `b` side by side, then `c` after 1 ms in the queue for 9 ms."""
    joined = max(a, b)
    calls = (leaf("a", 0, 0, a), leaf("b", 0, 0, b), leaf("c", joined, joined + 1, joined + 10))
    end = (joined + 10) * MS
    return Span("", 0, end, (Span("p", 0, end, calls),))


ROOTS = [request(10, 30), request(10, 40), request(50, 20)]


def test_a_row_says_what_a_node_costs_and_what_speed_would_bring() -> None:
    summary = summarise(ROOTS, EDGES)
    rows = {row.path: row for row in summary.rows}
    b = rows["p", "b"]
    assert b.critical == {Kind.COMPUTE: pytest.approx(70 / 3)}
    assert b.on_path == pytest.approx(2 / 3)
    assert b.share == pytest.approx(70 / (40 + 50 + 60))
    assert b.slack == 0
    assert rows["p", "a"].slack == 20
    c = rows["p", "c"]
    assert c.critical == {Kind.QUEUE: pytest.approx(1), Kind.COMPUTE: pytest.approx(9)}
    assert (c.queue, c.compute) == (pytest.approx(1), pytest.approx(9))
    assert (c.halved_saves_p50, c.halved_saves_p95) == (4.5, 4.5)


def test_the_rows_share_the_whole_time() -> None:
    assert sum(row.share for row in summarise(ROOTS, EDGES).rows) == pytest.approx(1)


def test_the_node_that_costs_most_comes_first() -> None:
    assert [row.path[-1] for row in summarise(ROOTS, EDGES).rows] == ["b", "a", "c", "p"]


def test_the_median_and_the_slowest_are_requests_that_were_there() -> None:
    summary = summarise(ROOTS, EDGES)
    assert (summary.median, summary.p99) == (ROOTS[1], ROOTS[2])
    assert (summary.p50, summary.p95, summary.requests) == (50, 60, 3)


def test_what_is_off_the_path_saves_nothing() -> None:
    assert saved(ROOTS[:2], Change(factors={("p", "a"): 0.5}), EDGES) == (0, 0)


def test_a_node_that_few_requests_reach_is_judged_by_those() -> None:
    """As behind a condition."""
    without = Span("", 0, 10 * MS, (Span("p", 0, 10 * MS, (leaf("a", 0, 0, 10),)),))
    rows = {row.path: row for row in summarise([without, without, request(10, 30)], EDGES).rows}
    assert rows["p", "b"].on_path == pytest.approx(1 / 3)
    assert rows["p", "b"].compute == 30


def test_batches_are_of_models_that_compute_and_of_none_that_is_not_known() -> None:
    """Whoever counts for a pipeline counts what Python did for it, which is no batch of a model."""
    rows = summarise(ROOTS, EDGES, {"a": 1.5, "c": 2.0, "p": 1.0}).rows
    assert {row.path[-1]: row.batch for row in rows} == {"a": 1.5, "b": None, "c": 2.0, "p": None}


def test_quantiles_are_numbers_that_were_there() -> None:
    assert [quantile([1, 2, 3, 4], q) for q in (0, 0.5, 0.75, 0.95, 1)] == [1, 2, 3, 4, 4]
