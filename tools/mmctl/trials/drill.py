"""Failure drills: each node in turn slow, wrong or dead, and what becomes of the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mmctl.pipeline.graph import Node
from mmctl.trials.faults import Fault, sleep_ms
from mmctl.trials.healthy import Healthy, check_company, find_problem, measure
from mmctl.trials.judge import Tried, judge
from mmctl.trials.promises import NORMAL, Outcome, Promise, Slack, Sources, limit_ms, promise_of
from mmctl.trials.reach import Expected, Reach, find_reach, read_expected
from mmctl.trials.requests import Request
from mmctl.trials.rig import Rig, Say
from mmctl.trials.rows import Row, Verdict

RECOVERY_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """A node that a stub runs, what it is asked, and what may be answered."""

    rig: Rig
    node: Node
    stub: str
    healthy: Healthy
    reach: Reach
    expected: Mapping[Sources, Expected]


def drill(
    rig: Rig,
    singles: Sequence[Request],
    nodes: Sequence[Node],
    faults: Sequence[Fault],
    say: Say,
    slack: Slack = NORMAL,
) -> Iterator[Row]:
    """Rows as they are found, those of the healthy pipeline first: none follow if that fails."""
    say(f"{rig.pipeline}: {len(singles)} rows, without a fault")
    healthy = measure(rig, singles)
    if isinstance(healthy, Row):
        yield healthy
        return
    yield from check_company(rig, singles, healthy)
    for node in nodes:
        promises = {
            fault: promise_of(rig.graph, rig.form, node, fault, slack)
            for fault in Fault
            if fault in faults
        }
        say(f"`{node.name}`: {', '.join(promises)}")
        yield from _drill_node(rig, singles, healthy, node, promises)
    rig.restore()


def _drill_node(
    rig: Rig,
    singles: Sequence[Request],
    healthy: Healthy,
    node: Node,
    promises: Mapping[Fault, Promise],
) -> Iterator[Row]:
    stub = rig.stand_in(node)
    reach = find_reach(rig, singles, healthy, node, stub)
    if isinstance(reach, str):
        yield Row(node.name, "none", "the same answers through a stub", reach, Verdict.BROKEN)
        return
    ways = [way for promise in promises.values() for way in promise.ways]
    expected = read_expected(rig, singles, healthy, reach, node, ways)
    rig.stand_in(node)
    trial = Trial(rig, node, stub, healthy, reach, expected)
    for fault, promise in promises.items():
        if promise.outcome is Outcome.NOTHING or not reach.requests:
            got = "not tried" if reach.requests else "no sample reaches it"
            yield Row(node.name, fault, promise.text, got, Verdict.NONE)
        else:
            yield _drill_fault(trial, fault, promise)


def _drill_fault(trial: Trial, fault: Fault, promise: Promise) -> Row:
    rig, reach = trial.rig, trial.reach
    rig.set_fault(trial.stub, fault, sleep_ms(limit_ms(rig.graph, trial.node)))
    tries = [_try(trial, promise, request, ms) for request, ms in reach.tries(fault)]
    row = judge(trial.node.name, fault, promise, tries)
    if fault is Fault.DEAD:
        return row  # the last one: its stub stays dead
    rig.set_fault(trial.stub, "none")
    if _recovers(trial) or row.verdict is Verdict.BROKEN:
        return row
    got = f"{row.got}, but no right answer {RECOVERY_S:.0f} s after it"
    return replace(row, got=got, verdict=Verdict.BROKEN)


def _try(trial: Trial, promise: Promise, request: Request, healthy_ms: float) -> Tried:
    bound_ms = None if promise.beyond_ms is None else healthy_ms + promise.beyond_ms
    reply = trial.rig.ask(request.inputs)
    if reply.outputs is None:
        return Tried(reply.ms, bound_ms, reply.error, hung=reply.hung)
    wrong = {}
    for sources, expected in trial.expected.items():
        answers = [expected[row] for row in request.rows]
        rows = [answer for answer in answers if not isinstance(answer, str)]
        if len(rows) < len(answers):
            wrong[sources] = "an answer, where the declared values give none"
        elif problem := find_problem(trial.rig, reply, rows):
            wrong[sources] = problem
    return Tried(reply.ms, bound_ms, wrong=wrong)


def _recovers(trial: Trial) -> bool:
    """Whether answers are right again once the fault is over: calls under way end first."""
    request, _ = trial.reach.requests[0]
    end = time.monotonic() + RECOVERY_S
    while find_problem(trial.rig, trial.rig.ask(request.inputs), trial.healthy.of(request)):
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
