"""What the forms cost: one graph as mmctl compiles it, against the same written by hand.

    scripts/bench_forms                        every contest
    scripts/bench_forms ensemble --pairs 30    one of them, longer
    scripts/bench_forms --gate                 exit 1 when a median is above its target
    scripts/bench_forms --json > now.json      to be compared later

Contests: `ensemble` and `bls`, the whole graph in these forms; `step_text` and `step_image`, a
single model with one step; `fused`, against mmctl's own ensemble. The graph and what is written by
hand lie in scripts/baselines, whose README says what makes it fair.

One server holds all variants and the sides of a pair take turns. CPU is that of the server's whole
process tree; the client is another process and not counted. Both sides must answer the same before
anything is measured. Intervals are of 95 % or more from 6 pairs on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from bench_graph import ask, requests, serving_all, stacked
from bench_load import Load, serialise
from bench_measure import (
    Estimate,
    Table,
    circumstances,
    estimate,
    interleaved,
    parser_of,
    say,
    tree_cpu_ms,
)

from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.workspace import read_workspace

ROOT = Path(__file__).resolve().parent.parent
DIFFERENT_BODIES = 64


@dataclass(frozen=True, slots=True)
class Contest:
    """`model` shall cost at most `target` times what `against` costs; both take `inputs`."""

    model: str
    against: str
    target: float
    inputs: tuple[str, ...] = ("text", "image")


CONTESTS = {
    "ensemble": Contest("ensemble", "hand_ensemble", 1.05),
    "bls": Contest("bls", "hand_bls", 1.10),
    "step_text": Contest("ensemble__text", "hand_text", 1.10, ("text",)),
    "step_image": Contest("ensemble__image", "hand_image", 1.10, ("image",)),
    "fused": Contest("fused", "ensemble", 0.50),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. CPU is milliseconds per request."""

    contest: str
    in_flight: int
    cpu_ms: Estimate
    against: str
    against_cpu_ms: Estimate
    ratio: Estimate
    target: float
    met: bool

    def __str__(self) -> str:
        return (
            f"{self.contest:<10} {self.in_flight:>9} {self.cpu_ms!s:>22} {self.against:>14} "
            f"{self.against_cpu_ms!s:>22} {self.ratio!s:>22} {self.target:>6.2f} "
            f"{'met' if self.met else 'ABOVE'}"
        )


HEADER = (
    f"{'contest':<10} {'in flight':>9} {'CPU ms':>22} {'against':>14} {'CPU ms':>22} "
    f"{'ratio':>22} {'target':>6}"
)


class Bench:
    """Measures models of a running server; each time sends `count` requests."""

    def __init__(self, server: EmbeddedTriton, load: Load, count: int) -> None:
        self._pid, self._load, self._count = server.info.pid, load, count
        self._rows = requests(DIFFERENT_BODIES)

    def measure(self, name: str, in_flight: int, pairs: int) -> Row:
        contest = CONTESTS[name]
        one, other = (
            partial(self._cpu_ms, self._serialised(model, contest.inputs), in_flight)
            for model in (contest.model, contest.against)
        )
        one()
        other()
        sides = list(interleaved(pairs, one, other))
        ratio = estimate([mine / theirs for mine, theirs in sides])
        return Row(
            contest=name,
            in_flight=in_flight,
            cpu_ms=estimate([mine for mine, _ in sides]),
            against=contest.against,
            against_cpu_ms=estimate([theirs for _, theirs in sides]),
            ratio=ratio,
            target=contest.target,
            met=ratio.median <= contest.target,
        )

    def _serialised(self, model: str, inputs: Sequence[str]) -> list[bytes]:
        return [serialise(model, {name: row[name] for name in inputs}) for row in self._rows]

    def _cpu_ms(self, bodies: Sequence[bytes], in_flight: int) -> float:
        """Per request."""
        before = tree_cpu_ms(self._pid)
        result = self._load.run(bodies, in_flight, count=self._count)
        return (tree_cpu_ms(self._pid) - before) / result.requests


def refuse_differences(server: EmbeddedTriton, names: Sequence[str]) -> None:
    """Ends the script unless both sides of every contest answer the same."""
    from tritonclient.grpc import InferenceServerClient

    rows = stacked(requests(8))
    with InferenceServerClient(server.grpc) as client:
        for contest in (CONTESTS[name] for name in names):
            inputs = {name: rows[name] for name in contest.inputs}
            mine, theirs = (ask(client, m, inputs) for m in (contest.model, contest.against))
            if not np.allclose(mine, theirs, atol=1e-5):
                what = f"`{contest.model}` and `{contest.against}`"
                raise SystemExit(f"error: {what} answer differently")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("contests", nargs="*", default=list(CONTESTS), metavar="CONTEST")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=2000, help="of each side of a pair")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--gate", action="store_true", help="exit 1 when a target is not met")
    asked = parser.parse_args()
    if unknown := set(asked.contests) - set(CONTESTS):
        parser.error(f"no contest `{unknown.pop()}`; there are {', '.join(CONTESTS)}")
    return asked


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    asked = arguments()
    workspace = read_workspace(ROOT)
    with (
        serving_all(ensure_runtime(workspace, say), workspace.state, say) as server,
        Load(server.grpc) as load,
    ):
        refuse_differences(server, asked.contests)
        bench = Bench(server, load, asked.requests)
        around = circumstances(f"Triton {server.info.release}")
        table: Table[Row] = Table(around, HEADER, json=asked.json)
        for name in asked.contests:
            for in_flight in asked.in_flight:
                table.add(bench.measure(name, in_flight, asked.pairs))
    table.end(pairs=asked.pairs, requests=asked.requests)
    if asked.gate and not all(row.met for row in table.rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
