"""The chain of work that set the time of an answer. Times here are small whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.trace.critical_path import Change, Edges, critical_path, length_with, slack
from mmctl.trace.spans import Compute, Span


def leaf(model: str, start: int, compute: int, end: int, output: int | None = None) -> Span:
    """Queues from `start` to `compute`; its answer is there at `output`, by default its end."""
    ready = end if output is None else output
    return Span(model, start, end, compute=Compute(compute, compute, ready, end))


def request(*calls: Span, end: int, model: str = "p", more: int = 0) -> Span:
    """A request that took from 0 to `end`, in a pipeline that is left `more` before."""
    return Span("", 0, end, (Span(model, 0, end - more, calls),))


def told(root: Span, edges: Edges | None = None) -> list[tuple[str, str, int]]:
    return [("/".join(s.path), s.kind, s.ns) for s in critical_path(root, edges)]


CHAIN = request(leaf("a", 1, 2, 10), leaf("b", 12, 12, 20), end=23, more=2)
FORK = request(leaf("a", 0, 0, 10), leaf("b", 0, 0, 30), leaf("c", 31, 33, 40), end=41)
FORK_EDGES = {"p": {"c": frozenset({"a", "b"})}}


def test_a_chain_is_all_on_the_path() -> None:
    assert told(CHAIN) == [
        ("p", "composition", 1),
        ("p/a", "queue", 1),
        ("p/a", "compute", 8),
        ("p", "composition", 2),
        ("p/b", "compute", 8),
        ("p", "composition", 1),
        ("", "server", 2),
    ]


def test_of_two_branches_the_later_one_is_on_the_path() -> None:
    assert told(FORK) == [
        ("p/b", "compute", 30),
        ("p", "composition", 1),
        ("p/c", "queue", 2),
        ("p/c", "compute", 7),
        ("p", "composition", 1),
    ]


def test_what_was_not_waited_for_is_not_on_the_path_though_it_ended_just_before() -> None:
    """`a` is what `c` needs; `b` runs beside them."""
    root = request(leaf("a", 0, 0, 10), leaf("b", 0, 0, 19), leaf("c", 20, 20, 40), end=40)
    needs = {"p": {"c": frozenset({"a"}), "b": frozenset[str](), "a": frozenset[str]()}}
    assert ("p/a", "compute", 10) in told(root, needs)
    assert ("p/b", "compute", 19) in told(root)


def test_a_model_ends_after_its_answer_was_handed_on() -> None:
    """Triton closes `a` at 12, its answer was there at 9 and `b` began with it at 10."""
    root = request(leaf("a", 0, 0, 12, output=9), leaf("b", 10, 10, 20), end=20)
    assert told(root) == [("p/a", "compute", 10), ("p/b", "compute", 10)]


def test_an_answer_that_came_too_late_held_nobody_up() -> None:
    """A pipeline that has stopped waiting, for a fallback."""
    root = request(leaf("quick", 0, 0, 5), leaf("late", 0, 0, 90), end=30)
    assert told(root) == [("p/quick", "compute", 5), ("p", "composition", 25)]
    assert length_with(root, Change(factors={("p", "late"): 0.5})) == 30


def test_a_pipeline_inside_a_pipeline_is_named_by_its_callers() -> None:
    inner = Span("inner", 2, 18, (leaf("a", 3, 3, 17),))
    assert told(request(inner, end=20))[1:3] == [
        ("p/inner", "composition", 1),
        ("p/inner/a", "compute", 14),
    ]


def test_a_pipeline_that_python_runs_waits_for_an_instance_first() -> None:
    """Its own compute span holds what it calls."""
    pipeline = Span("p", 0, 30, (leaf("a", 6, 6, 20),), Compute(5, 5, 29, 30))
    assert told(Span("", 0, 30, (pipeline,))) == [
        ("p", "queue", 5),
        ("p", "composition", 1),
        ("p/a", "compute", 14),
        ("p", "composition", 10),
    ]


@pytest.mark.parametrize(
    ("factors", "length"),
    [
        ({("p", "b"): 0.5}, 41 - 15),
        ({("p", "b"): 0.1}, 41 - 20),  # then `a` is the later one
        ({("p", "a"): 0.5}, 41),
        ({("p", "a"): 4.0}, 41 + 10),
        ({("p", "c"): 2.0}, 41 + 7),
        ({("p", "b"): 0.5, ("p", "c"): 0.0}, 41 - 15 - 7),
    ],
)
def test_what_if_a_model_computed_faster_or_slower(
    factors: dict[tuple[str, ...], float], length: int
) -> None:
    assert length_with(FORK, Change(factors=factors), FORK_EDGES) == length


def test_slack_is_how_much_later_an_answer_may_come() -> None:
    assert [slack(FORK, ("p", name), FORK_EDGES) for name in "abc"] == [20, 0, 0]


def test_without_an_edge_that_is_not_needed_models_run_side_by_side() -> None:
    root = request(leaf("a", 0, 0, 10), leaf("b", 10, 10, 30), leaf("c", 30, 30, 35), end=35)
    chain = {"p": {"b": frozenset({"a"}), "c": frozenset({"a", "b"})}}
    freed = {"p": {"b": frozenset[str](), "c": frozenset({"a", "b"})}}
    assert length_with(root, Change(edges=freed), chain) == 25


@st.composite
def spans(draw: st.DrawFn, depth: int = 2, latest: int = 1000) -> Span:
    """A model that was asked at 0 or later: times as a server may report them."""
    start = draw(st.integers(0, latest))
    end = draw(st.integers(start, start + 1000))
    compute = None
    if draw(st.booleans()):
        a, b, c, d = sorted(draw(st.lists(st.integers(start, end), min_size=4, max_size=4)))
        compute = Compute(a, b, c, d)
    children: list[Span] = []
    if depth:
        children = draw(st.lists(spans(depth - 1, latest=end), max_size=4))  # type: ignore[call-arg]
    inside = tuple(sorted((c for c in children if c.start >= start), key=lambda c: c.start))
    return Span(draw(st.sampled_from("abc")), start, end, inside, compute)


@given(spans())
def test_the_segments_of_a_path_tile_the_request(span: Span) -> None:
    root = Span("", span.start, span.end, (span,))
    path = critical_path(root)
    assert sum(segment.ns for segment in path) == root.end - root.start
    cursor = root.start
    for segment in path:
        assert segment.start == cursor
        assert segment.end > segment.start
        cursor = segment.end
    assert cursor == root.end or not path


@given(spans())
def test_when_nothing_changes_the_length_is_the_same(span: Span) -> None:
    assert length_with(Span("", span.start, span.end, (span,)), Change()) == span.end - span.start


@given(spans(), st.floats(0, 1), st.floats(0, 1))
def test_the_faster_a_model_computes_the_shorter_is_the_request(
    span: Span, one: float, other: float
) -> None:
    root = Span("", span.start, span.end, (span,))
    for inside in {(span.model, child.model) for child in span.children}:
        lengths = [length_with(root, Change(factors={inside: f})) for f in sorted((one, other))]
        assert lengths[0] <= lengths[1] <= root.end - root.start
