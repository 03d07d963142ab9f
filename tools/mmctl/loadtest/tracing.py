"""Requests that are traced, one after the other or under load, and what they tell together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmctl.client.statistics import mean_batches
from mmctl.client.transport import GrpcTransport
from mmctl.errors import Refused, WorldError
from mmctl.inference import InferRequest
from mmctl.loadtest.collect import Collector, new_trace
from mmctl.loadtest.counts import Counts
from mmctl.trace.critical_path import Edges
from mmctl.trace.edges import Waits, waits_of_ensemble, waits_of_plan
from mmctl.trace.spans import Span

EXPORT_S = 3.0
"""Triton exports twice a second; a busy one may be late."""
ROUNDS = 4
"""Triton 2.51 leaves out about 3 of 100 requests that it should trace, whichever: these are sent
once more. When so many rounds bring none at all, the traces go elsewhere."""
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class Traced:
    """Requests as the server saw them, in the order in which they were sent.

    `batches` are rows per execution, by model, of all that the server did meanwhile: traces do not
    say it. Without what has no executions, and empty for a server that does not count.
    """

    roots: tuple[Span, ...]
    edges: Edges
    batches: Mapping[str, float]


def trace_requests(
    transport: GrpcTransport,
    collector: Collector,
    requests: Sequence[InferRequest],
    count: int,
    plans: Path,
    tell: Callable[[int], None],
) -> Traced:
    """Send requests, in turn and one at a time, until `count` are traced. `plans` is where the
    versions of models lie, for pipelines that Python runs; `tell` is told of each answer.

    Raises Refused when no traces come, WorldError as `GrpcTransport.infer`.
    """
    sent: list[str] = []
    found: dict[str, Span] = {}
    counts = Counts(transport)
    counts.begin()
    for _ in range(ROUNDS):
        for _ in range(count - len(found)):
            trace, header = new_trace()
            request = requests[len(sent) % len(requests)]
            transport.infer(replace(request, headers={**request.headers, **header}))
            sent.append(trace)
            tell(len(sent))
        found = collector.wait_for(sent, EXPORT_S, least=count)
        if not found or len(found) >= count:
            break
    if len(found) < ENOUGH * count:
        raise Refused(
            f"{len(sent)} requests were answered, and traces of {len(found)} have come",
            hint="look whether the server sends its traces here: `mmctl trace --help`",
        )
    roots = tuple(found[trace] for trace in sent if trace in found)
    return Traced(roots, edges_of(transport, roots, plans), mean_batches(counts.since()))


def edges_of(transport: GrpcTransport, roots: Iterable[Span], plans: Path) -> Edges:
    """What waits for what in each pipeline that is in the traces, as far as anybody knows it."""
    composing = {
        (span.model, span.version) for root in roots for span in root.walk() if span.children
    }
    return {
        model: waits
        for model, version in sorted(composing)
        if model and (waits := _waits(transport, model, version, plans)) is not None
    }


def _waits(transport: GrpcTransport, model: str, version: str, plans: Path) -> Waits | None:
    try:
        config = transport.config(model, version)
    except WorldError:
        return None
    if config.steps:
        return waits_of_ensemble(config.steps)
    try:
        return waits_of_plan(json.loads((plans / model / version / "plan.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
