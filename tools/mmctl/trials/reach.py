"""What a node is drilled with: requests that reach it, and the answers that may come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmctl.pipeline.graph import Node
from mmctl.trials.answers import Outputs
from mmctl.trials.faults import Fault
from mmctl.trials.healthy import Healthy, find_problem, problem_of
from mmctl.trials.promises import Outcome, Promise, Sources
from mmctl.trials.requests import Request, joined
from mmctl.trials.rig import Rig

PICKED = 2
"""Rows that are sent for each fault, of those that reach the node; then they go in one batch."""
WAITING = (Fault.SLOW, Fault.DEAD)

Expected = Mapping[int, Outputs | str]
"""By row the answer that is promised, or why there is none."""


@dataclass(frozen=True, slots=True)
class Reach:
    """`rows` reach the node. Each request goes with how long it takes without a fault, in ms:
    single rows first, then batches, with a row that does not reach the node where there is one.
    """

    rows: frozenset[int]
    requests: tuple[tuple[Request, float], ...]

    def tries(self, fault: Fault) -> tuple[tuple[Request, float], ...]:
        """Where each request has to wait, the first and the last are enough."""
        is_long = fault in WAITING and len(self.requests) > 2
        return (self.requests[0], self.requests[-1]) if is_long else self.requests


def find_reach(
    rig: Rig, singles: Sequence[Request], healthy: Healthy, node: Node, stub: str
) -> Reach | str:
    """Sends every row through the stub; a text says what is wrong if that changes an answer."""
    rows, ms = set(), list(healthy.ms)
    for row, request in enumerate(singles):
        before = rig.calls(stub)
        reply = rig.ask(request.inputs)
        if problem := find_problem(rig, reply, healthy.of(request)):
            return problem
        ms[row] = max(reply.ms, ms[row])
        if rig.calls(stub) > before:
            rows.add(row)
    picked = [singles[row] for row in sorted(rows)[:PICKED]]
    requests = [(request, ms[request.rows[0]]) for request in picked]
    # A row without items runs a node that goes item by item, and fails with the others.
    others = [] if node.policy.foreach else [r for r in singles if not rows & {*r.rows}]
    for batch in joined([*picked, *others[:1]], rig.graph.max_batch):
        reply = rig.ask(batch.inputs)
        if problem := find_problem(rig, reply, healthy.of(batch)):
            return problem
        requests += [(batch, reply.ms)] if rows & {*batch.rows} else []
    return Reach(frozenset(rows), tuple(requests))


def read_expected(
    rig: Rig,
    singles: Sequence[Request],
    healthy: Healthy,
    reach: Reach,
    node: Node,
    promises: Iterable[Promise],
) -> dict[Sources, Expected]:
    """What is answered when nothing fails, and the nodes that would absorb a failure give their
    declared values. Rows that do not reach the node are answered as ever.
    """
    asked = {row for request, _ in reach.requests for row in request.rows} & reach.rows
    found: dict[Sources, Expected] = {((), ()): dict(enumerate(healthy.outputs))}
    for promise in promises:
        if promise.outcome is Outcome.DECLARED and promise.sources not in found and asked:
            rig.declare(node, promise)
            answers = {row: _answer(rig, singles[row]) for row in asked}
            found[promise.sources] = {**found[(), ()], **answers}
    return found


def _answer(rig: Rig, request: Request) -> Outputs | str:
    reply = rig.ask(request.inputs)
    return problem_of(reply) if reply.outputs is None else reply.outputs
