"""A pipeline as a drawing: its models in layers, what waits for what, and where time goes. Pure.

A model stands one layer below the last that it waits for. An edge over several layers gets a
place of its own in each, so that it leads past the models there; within a layer, places are
ordered by the mean place of their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise

WIDTH, HEIGHT, GAP, PASSAGE, BETWEEN = 136, 46, 16, 14, 34
"""Pixels: a box, between boxes, the way of an edge past boxes, between layers."""
LETTERS = 17
"""As many fit into a box."""
SWEEPS = 4
STRONGEST = 75
"""Per cent of colour for the model that takes most: its name must stay readable."""

Waits = Mapping[str, Set[str]]
"""By model: the models that it waits for."""


@dataclass(frozen=True, slots=True)
class Place:
    """A box, or, without a `model`, where an edge passes a layer. `x`, `y`: its top middle."""

    model: str | None
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    places: tuple[Place, ...]
    edges: tuple[tuple[Place, ...], ...]
    """Each as the places that it leads through, the first and the last are models."""
    width: float
    height: float


def needed(waits: Waits) -> dict[str, frozenset[str]]:
    """Without the edges that follow from others: a model also waits for what those wait for."""
    above: dict[str, frozenset[str]] = {}
    for model in TopologicalSorter(waits).static_order():
        mine = waits.get(model, frozenset())
        above[model] = frozenset(mine).union(*(above[other] for other in mine))
    return {
        model: frozenset(
            other for other in mine if not any(other in above[one] for one in mine if one != other)
        )
        for model, mine in waits.items()
    }


def layout(waits: Waits) -> Layout:
    """Raises graphlib.CycleError for what is no pipeline."""
    reduced = needed(waits)
    layer: dict[str, int] = {}
    for model in TopologicalSorter(reduced).static_order():
        layer[model] = max((layer[other] + 1 for other in reduced.get(model, ())), default=0)
    # A key is a model, or an edge's passage through a layer.
    rows: list[list[tuple[str, ...]]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for model, depth in layer.items():
        rows[depth].append((model,))
    chains = []
    for model, below in layer.items():
        for other in sorted(reduced.get(model, ())):
            between = range(layer[other] + 1, below)
            passages = [(other, model, str(depth)) for depth in between]
            for depth, passage in zip(between, passages, strict=True):
                rows[depth].append(passage)
            chains.append([(other,), *passages, (model,)])
    rows = _untangled(rows, chains)
    widths = [
        sum(PASSAGE if len(key) > 1 else WIDTH for key in row) + GAP * (len(row) - 1)
        for row in rows
    ]
    width = max(widths, default=0) + 4
    placed: dict[tuple[str, ...], Place] = {}
    for depth, row in enumerate(rows):
        x = (width - widths[depth]) / 2
        for key in row:
            own = PASSAGE if len(key) > 1 else WIDTH
            y = 2 + depth * (HEIGHT + BETWEEN)
            placed[key] = Place(None if len(key) > 1 else key[0], x + own / 2, y)
            x += own + GAP
    return Layout(
        tuple(placed.values()),
        tuple(tuple(placed[key] for key in chain) for chain in chains),
        width,
        4 + len(rows) * (HEIGHT + BETWEEN) - BETWEEN if rows else 0,
    )


def _untangled(
    rows: Sequence[Sequence[tuple[str, ...]]], chains: Iterable[Sequence[tuple[str, ...]]]
) -> list[list[tuple[str, ...]]]:
    neighbours: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for chain in chains:
        for one, two in pairwise(chain):
            neighbours.setdefault(one, []).append(two)
            neighbours.setdefault(two, []).append(one)
    ordered = [list(row) for row in rows]
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for depth in range(1, len(ordered)) if down else range(len(ordered) - 2, -1, -1):
            beside = ordered[depth - 1 if down else depth + 1]
            place = {key: n / len(beside) for n, key in enumerate(beside)}
            mean = {}
            for n, key in enumerate(ordered[depth]):
                seen = [place[other] for other in neighbours.get(key, ()) if other in place]
                mean[key] = sum(seen) / len(seen) if seen else n / len(ordered[depth])
            ordered[depth].sort(key=mean.__getitem__)
    return ordered


def draw(waits: Waits, shares: Mapping[str, float], called: str) -> str:
    """SVG of what `called` calls; `shares` of the requests' time, from 0 to 1, by model."""
    drawn = layout(waits)
    most = max(shares.values(), default=0.0) or 1.0
    parts = [_edge(edge) for edge in drawn.edges]
    parts += [
        _box(place, place.model, shares.get(place.model, 0.0), most, called)
        for place in drawn.places
        if place.model is not None
    ]
    label = f"what {called} calls, {len(shares)} models, coloured by their share of the time"
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(called)}">'
        f'<svg class="graph" role="img" aria-label="{escape(label)}" width="{drawn.width:g}" '
        f'height="{drawn.height:g}" viewBox="0 0 {drawn.width:g} {drawn.height:g}">\n'
        + "\n".join(parts)
        + "\n</svg></div>"
    )


def _box(place: Place, model: str, share: float, most: float, called: str) -> str:
    name = model.removeprefix(f"{called}__")
    name = name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"
    colour = f"color-mix(in srgb, var(--hot) {STRONGEST * share / most:.0f}%, var(--paper))"
    return (
        f"<g><title>{escape(model)}: {share:.1%} of the time</title>"
        f'<rect x="{place.x - WIDTH / 2:g}" y="{place.y:g}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="5" style="fill: {colour}"/>'
        f'<text x="{place.x:g}" y="{place.y + 19:g}">{escape(name)}</text>'
        f'<text class="share" x="{place.x:g}" y="{place.y + 37:g}">{share:.0%}</text></g>'
    )


def _edge(edge: Sequence[Place]) -> str:
    """From the foot of its first box to the head of its last one."""
    first, *passed, last = edge
    x, y = first.x, first.y + HEIGHT
    way = [f"M{x:g} {y:g}"]
    for place in [*passed, last]:
        end = place.y - (4 if place is last else 0)
        middle = (y + end) / 2
        way.append(f"C{x:g} {middle:g} {place.x:g} {middle:g} {place.x:g} {end:g}")
        x, y = place.x, end
        if place is not last:
            y = place.y + HEIGHT
            way.append(f"V{y:g}")
    tip = f"M{x - 4:g} {y - 3:g}L{x + 4:g} {y - 3:g}L{x:g} {y + 4:g}Z"
    return f'<path d="{"".join(way)}"/><path class="head" d="{tip}"/>'
