"""A pipeline without any fault: what it answers to each row, and that company changes nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mmctl.trials.answers import Outputs, find_difference
from mmctl.trials.requests import Request, joined
from mmctl.trials.rig import Reply, Rig
from mmctl.trials.rows import Row, Verdict

WARM_UPS, ROUNDS = 2, 3
CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Healthy:
    """By row: what it is answered alone, and after how long."""

    outputs: tuple[Outputs, ...]
    ms: tuple[float, ...]

    def of(self, request: Request) -> list[Outputs]:
        return [self.outputs[row] for row in request.rows]


def measure(rig: Rig, singles: Sequence[Request]) -> Healthy | Row:
    """Every row alone, several times. A Row tells why there is nothing to go by."""
    rounds = [[rig.ask(r.inputs) for r in singles] for _ in range(WARM_UPS + ROUNDS)][WARM_UPS:]
    first: list[Outputs] = []
    for request, reply in zip(singles, rounds[0], strict=True):
        if reply.outputs is None:
            return _row("alone", [f"row {request.rows[0] + 1}: {problem_of(reply)}"])
        first.append(reply.outputs)
    ms = tuple(statistics.median(r[i].ms for r in rounds) for i in range(len(singles)))
    healthy = Healthy(tuple(first), ms)
    again = [pair for replies in rounds[1:] for pair in zip(singles, replies, strict=True)]
    problems = list(_problems(rig, healthy, again))
    return _row("alone, again", problems) if problems else healthy


def check_company(rig: Rig, singles: Sequence[Request], healthy: Healthy) -> Iterator[Row]:
    """Many at once and many in one: the answers are those of the rows alone."""
    most = rig.graph.rules.max_pending or CLIENTS
    many = [request for _ in range(ROUNDS) for request in singles]
    many = many if len(many) >= 2 * CLIENTS else many * (2 * CLIENTS // len(many) + 1)
    with ThreadPoolExecutor(min(CLIENTS, most)) as pool:
        replies = list(pool.map(lambda request: rig.ask(request.inputs), many))
    yield _row("side by side", list(_problems(rig, healthy, zip(many, replies, strict=True))))
    batches = joined(singles, rig.graph.max_batch)
    if batches:
        pairs = [(batch, rig.ask(batch.inputs)) for batch in batches]
        yield _row("in one batch", list(_problems(rig, healthy, pairs)))


def find_problem(rig: Rig, reply: Reply, wanted: Sequence[Outputs]) -> str | None:
    """Why a reply is not these answers, one for each of its rows."""
    if reply.outputs is None:
        return problem_of(reply)
    is_batched = rig.graph.max_batch > 0
    return find_difference(reply.outputs, wanted, rig.compared, batched=is_batched)


def problem_of(reply: Reply) -> str:
    return f"no answer after {reply.ms / 1000:.0f} s" if reply.hung else reply.error


def _problems(rig: Rig, healthy: Healthy, pairs: Iterable[tuple[Request, Reply]]) -> Iterator[str]:
    for request, reply in pairs:
        if problem := find_problem(rig, reply, healthy.of(request)):
            where = f"row {request.rows[0] + 1}" if len(request.rows) == 1 else "a batch"
            yield f"{where}: {problem}"


def _row(how: str, problems: Sequence[str]) -> Row:
    verdict = Verdict.BROKEN if problems else Verdict.KEPT
    got = problems[0] if problems else "the same answers"
    return Row("", how, "the same answers as alone", got, verdict)
