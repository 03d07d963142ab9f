"""Many traced requests -> one row a node: what it costs, and what it would bring to speed it up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmctl.quantiles import quantile, rank
from mmctl.trace.critical_path import (
    Change,
    Edges,
    Kind,
    Path,
    Segment,
    critical_path,
    length_with,
    slack,
)
from mmctl.trace.spans import Span

HALF = 0.5
_MS = 1e6


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node over all requests. Times are in ms, means over the requests unless they say else."""

    path: Path
    critical: Mapping[Kind, float]
    """Time on the critical path, by what it was spent on."""
    share: float
    """Of the requests' time, from 0 to 1."""
    on_path: float
    """Share of the requests on whose critical path it is."""
    slack: float
    """How much later it could have answered without any loss; the median."""
    queue: float
    compute: float
    """Both on the critical path or not, of the requests that came to it."""
    halved_saves_p50: float
    halved_saves_p95: float
    """By how much the median and the p95 of all requests fall when it computes in half the time."""
    batch: float | None
    """Rows per execution of its model; None where that is not known, and of pipelines."""

    @property
    def critical_ms(self) -> float:
        return sum(self.critical.values())


@dataclass(frozen=True, slots=True)
class Summary:
    """Rows with the most time on the critical path first; `p50` and `p95` of the requests in ms.
    `median` and `p99` are those requests themselves.
    """

    requests: int
    p50: float
    p95: float
    rows: tuple[NodeRow, ...]
    median: Span
    p99: Span


def summarise(
    roots: Sequence[Span], edges: Edges, batches: Mapping[str, float] | None = None
) -> Summary:
    """At least one request. `batches` are rows per execution by model, where they are known."""
    ordered = sorted(roots, key=_length)
    paths = [critical_path(root, edges) for root in roots]
    total = sum(map(_length, roots))
    rows = [
        _row(path, roots, paths, total, edges, batches or {})
        for path in sorted({path for root in roots for path, _ in nodes(root)})
    ]
    rows.sort(key=lambda row: -row.critical_ms)
    lengths = [_length(root) for root in ordered]
    return Summary(
        requests=len(roots),
        p50=quantile(lengths, 0.5) / _MS,
        p95=quantile(lengths, 0.95) / _MS,
        rows=tuple(rows),
        median=ordered[rank(len(ordered), 0.5)],
        p99=ordered[rank(len(ordered), 0.99)],
    )


def nodes(span: Span, above: Path = ()) -> Iterator[tuple[Path, Span]]:
    """The models below a request with their paths, in the order in which they were asked."""
    path = (*above, span.model) if span.model else above
    if path:
        yield path, span
    for child in span.children:
        yield from nodes(child, path)


def saved(roots: Sequence[Span], change: Change, edges: Edges) -> tuple[float, float]:
    """By how many ms the median and the p95 of these requests fall with a change."""
    before = sorted(map(_length, roots))
    after = sorted(length_with(root, change, edges) for root in roots)
    return (
        (quantile(before, 0.5) - quantile(after, 0.5)) / _MS,
        (quantile(before, 0.95) - quantile(after, 0.95)) / _MS,
    )


def _row(
    path: Path,
    roots: Sequence[Span],
    paths: Sequence[Sequence[Segment]],
    total: int,
    edges: Edges,
    batches: Mapping[str, float],
) -> NodeRow:
    critical: defaultdict[Kind, float] = defaultdict(float)
    on_path = 0
    for segments in paths:
        mine = [segment for segment in segments if segment.path == path]
        on_path += bool(mine)
        for segment in mine:
            critical[segment.kind] += segment.ns
    with_it = [root for root in roots if any(p == path for p, _ in nodes(root))]
    spans = [span for root in with_it for p, span in nodes(root) if p == path]
    halved = saved(roots, Change(factors={path: HALF}), edges)
    return NodeRow(
        path=path,
        critical={kind: ns / len(roots) / _MS for kind, ns in critical.items()},
        share=sum(critical.values()) / total if total else 0.0,
        on_path=on_path / len(roots),
        slack=quantile(sorted(slack(root, path, edges) for root in with_it), 0.5) / _MS,
        queue=_mean(s.compute.start - s.start for s in spans if s.compute) / _MS,
        compute=_mean(map(_computed, (s for s in spans if not s.children))) / _MS,
        halved_saves_p50=halved[0],
        halved_saves_p95=halved[1],
        batch=None if any(span.children for span in spans) else batches.get(path[-1]),
    )


def _computed(span: Span) -> int:
    """A pipeline that Python runs computes for as long as it waits for others: that is not it."""
    return span.compute.end - span.compute.start if span.compute else 0


def _length(span: Span) -> int:
    return span.end - span.start


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else 0.0
