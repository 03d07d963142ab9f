"""A pipeline in layers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from graphlib import TopologicalSorter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mmctl.loadtest.report.graph import HEIGHT, WIDTH, Place, draw, layout, needed


def waits(*edges: str) -> dict[str, frozenset[str]]:
    """`ab`: b waits for a."""
    models = {model for edge in edges for model in edge}
    return {one: frozenset(e[0] for e in edges if e[1] == one) for one in sorted(models)}


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, frozenset[str]]:
    count = draw(st.integers(1, 9))
    return {
        f"m{n}": frozenset(f"m{other}" for other in draw(st.sets(st.integers(0, 8))) if other < n)
        for n in range(count)
    }


def test_what_follows_from_other_edges_is_not_drawn() -> None:
    assert needed(waits("ab", "bc", "ac", "cd", "ad")) == waits("ab", "bc", "cd")


def test_a_diamond_has_three_layers_and_its_branches_stand_side_by_side() -> None:
    places = {place.model: place for place in layout(waits("ab", "ac", "bd", "cd")).places}
    assert places["a"].y < places["b"].y == places["c"].y < places["d"].y
    assert abs(places["b"].x - places["c"].x) >= WIDTH
    assert places["a"].x == places["d"].x == (places["b"].x + places["c"].x) / 2


def test_branches_do_not_cross_where_they_need_not() -> None:
    drawn = layout(waits("ad", "bc"))
    assert not crossings(drawn.edges)


def test_an_edge_over_a_layer_leads_past_the_models_there() -> None:
    drawn = layout(waits("ab", "bc", "cd", "ae", "ed"))
    (long,) = (edge for edge in drawn.edges if len(edge) > 2)
    assert (long[0].model, long[-1].model) == ("e", "d")
    for passed in long[1:-1]:
        beside = [p for p in drawn.places if p.model and p.y == passed.y]
        assert all(abs(p.x - passed.x) > WIDTH / 2 for p in beside)


def crossings(edges: tuple[tuple[Place, ...], ...]) -> int:
    parts = [part for edge in edges for part in pairwise(edge)]
    return sum(
        (a.x - c.x) * (b.x - d.x) < 0
        for n, (a, b) in enumerate(parts)
        for c, d in parts[n + 1 :]
        if a.y == c.y
    )


@given(pipelines())
def test_boxes_never_overlap_and_edges_lead_down(waits: dict[str, frozenset[str]]) -> None:
    drawn = layout(waits)
    boxes = [place for place in drawn.places if place.model is not None]
    assert sorted(str(box.model) for box in boxes) == sorted(waits)
    for n, one in enumerate(boxes):
        assert 0 <= one.x - WIDTH / 2 <= one.x + WIDTH / 2 <= drawn.width
        assert one.y + HEIGHT <= drawn.height
        assert all(one.y != two.y or abs(one.x - two.x) > WIDTH for two in boxes[n + 1 :])
    for edge in drawn.edges:
        assert [place.y for place in edge] == sorted({place.y for place in edge})


@given(pipelines())
def test_all_that_is_waited_for_is_still_reached(waits: dict[str, frozenset[str]]) -> None:
    def reached(edges: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for model in TopologicalSorter(edges).static_order():
            found[model] = edges[model].union(*(found[other] for other in edges[model]))
        return found

    assert reached(needed(waits)) == reached(waits)


def test_names_and_shares_can_be_read_and_are_escaped() -> None:
    svg = draw({"p__a": frozenset(), "<b>&": frozenset({"p__a"})}, {"p__a": 0.75, "<b>&": 0.1}, "p")
    root = ET.fromstring(svg)
    texts = [text.text for text in root.iter("text")]
    assert texts == ["a", "75%", "<b>&", "10%"]
    titles = [title.text for title in root.iter("title")]
    assert titles == ["p__a: 75.0% of the time", "<b>&: 10.0% of the time"]
    assert "75%, var(--paper)" in str(root.find(".//rect").attrib["style"])  # type: ignore[union-attr]
