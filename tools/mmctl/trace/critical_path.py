"""The chain of work that set the time of an answer, and what would shorten it.

Walks back from the end of a request. What was ready last is what its successor waited for; a
neighbour that became ready later held nobody up. What waits for what is known from configs and
pipelines (`Edges`); where it is not, times must tell it: every neighbour that was ready before a
model began may have been waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from mmctl.trace.spans import Span

Edges = Mapping[str, Mapping[str, frozenset[str]]]
"""By composing model: by model that it calls, the called models which that one waits for."""
Path = tuple[str, ...]
"""A model and those that called it, the one that was asked first."""


class Kind(StrEnum):
    """What the time was spent on."""

    SERVER = "server"
    """The front end: before and after the model that was asked."""
    QUEUE = "queue"
    """Waiting for an instance of a model, or for a batch to fill."""
    COMPUTE = "compute"
    COMPOSITION = "composition"
    """A pipeline's own work between the models that it calls."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a request, in nanoseconds, that `path` spent on `kind`."""

    path: Path
    kind: Kind
    start: int
    end: int

    @property
    def ns(self) -> int:
        return self.end - self.start


def critical_path(root: Span, edges: Edges | None = None) -> tuple[Segment, ...]:
    """Segments, first to last, that tile `root` exactly: their lengths add up to its own."""
    back: list[Segment] = []
    _walk_back(root, root.end, (), edges or {}, back)
    return tuple(reversed(back))


def _walk_back(span: Span, until: int, above: Path, edges: Edges, back: list[Segment]) -> None:
    """What led to the answer of `span`, which its caller has used from `until` on."""
    path = (*above, span.model) if span.model else above
    own = Kind.COMPOSITION if span.model else Kind.SERVER
    cursor = until
    successor: Span | None = None
    while child := _last_before(span, successor, cursor, edges):
        handed = min(child.end, cursor)
        _add(back, path, own, handed, cursor)
        _walk_back(child, handed, path, edges, back)
        cursor, successor = child.start, child
    if successor is None and span.compute is not None:
        began = min(span.compute.start, cursor)
        _add(back, path, Kind.COMPUTE, began, cursor)
        cursor = began
    if span.compute is not None:
        began = min(max(span.compute.start, span.start), cursor)
        _add(back, path, own, began, cursor)
        cursor, own = began, Kind.QUEUE
    elif not span.children and span.model:
        own = Kind.QUEUE  # it never came to compute
    _add(back, path, own, span.start, cursor)


def _add(back: list[Segment], path: Path, kind: Kind, start: int, end: int) -> None:
    if start < end:
        back.append(Segment(path, kind, start, end))


def _last_before(span: Span, successor: Span | None, cursor: int, edges: Edges) -> Span | None:
    """What `successor`, or the answer of `span`, waited for last."""
    waited = (
        [child for child in span.children if child.ready <= cursor]
        if successor is None
        else waited_for(span, successor, edges)
    )
    return max(
        (child for child in waited if child.start < cursor),
        key=lambda child: (min(child.end, cursor), child.start),
        default=None,
    )


def waited_for(parent: Span, child: Span, edges: Edges) -> list[Span]:
    """The neighbours whose answers `child` needed, or may have needed where nobody knows."""
    known = edges.get(parent.model, {}).get(child.model)
    return [
        other
        for other in parent.children
        if other is not child
        and other.ready <= child.start
        and other.start < child.start
        and (known is None or other.model in known)
    ]


@dataclass(frozen=True, slots=True)
class Change:
    """What if: the compute time of models, by path, times `factors`; `delays` ns later; other
    `edges` between the models that a pipeline calls. Queues are taken to stay as they are.
    """

    factors: Mapping[Path, float] | None = None
    delays: Mapping[Path, int] | None = None
    edges: Edges | None = None


def length_with(root: Span, change: Change, edges: Edges | None = None) -> int:
    """How long the request would have been, in nanoseconds. `edges` are what it really had."""
    return _replay(root, (), change, edges or {})


def slack(root: Span, path: Path, edges: Edges | None = None) -> int:
    """How much later a model could have answered without making the request longer, in ns."""
    length = root.end - root.start
    delayed = length_with(root, Change(delays={path: length}), edges)
    return 2 * length - delayed


def _replay(span: Span, above: Path, change: Change, edges: Edges) -> int:
    """The new length of a span: what it calls begins as long after the last that it waits for as
    it did.
    """
    path = (*above, span.model) if span.model else above
    length = span.end - span.start + (change.delays or {}).get(path, 0)
    if not span.children:
        return length + _computed_more(span, path, change)
    new_edges = edges if change.edges is None else change.edges
    later: dict[int, int] = {}  # by child: how much later it ends; less than 0 is earlier
    for child in span.children:  # in the order in which they began
        before = waited_for(span, child, edges)
        still = before if change.edges is None else waited_for(span, child, new_edges)
        moved = _end_of(still, later, span.start) - _end_of(before, {}, span.start)
        more = _replay(child, path, change, edges) - (child.end - child.start)
        later[id(child)] = moved + more
    used = [child for child in span.children if child.ready <= span.end]
    return length + _end_of(used, later, span.start) - _end_of(used, {}, span.start)


def _end_of(spans: Iterable[Span], later: Mapping[int, int], start: int) -> int:
    """When the last of them has ended; `start` for none."""
    return max((span.end + later.get(id(span), 0) for span in spans), default=start)


def _computed_more(span: Span, path: Path, change: Change) -> int:
    factor = (change.factors or {}).get(path, 1.0)
    return round((factor - 1.0) * (span.compute.end - span.compute.start)) if span.compute else 0
