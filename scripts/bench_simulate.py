"""The simulation beside a real Triton: a pipeline of models that sleep.

What batches cost is measured by a profile, as `mmctl tune` does. Then requests are offered at
shares of what the pipeline can do at most, and the same arrivals are simulated. For p50 and p99 it
prints both, and the 95 % interval of the measured one (block bootstrap): the simulated one should
lie in it, or differ by at most 15 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench_load_rates import Pair, offer
from sleepers import SAMPLE_INPUTS, write_sleepers

from mmctl.client.samples import Sample
from mmctl.errors import WorldError
from mmctl.loadtest.bench import Progress
from mmctl.loadtest.schedule import Arrivals, OpenLoop, Phase, send_times
from mmctl.loadtest.search import Slo, World
from mmctl.loadtest.simulate import capacity, simulate
from mmctl.quantiles import quantile
from mmctl.serving.session import prepare, private_tree
from mmctl.trials.tune import Options, profile_of, world_of
from mmctl.trials.tune_bed import Bed
from mmctl.workspace import read_workspace

COSTS = {"read": (0.008, 0.0), "left": (0.02, 0.002), "right": (0.03, 0.001), "join": (0.012, 0.0)}
NODES = {
    "first": ("read", ["x"], ""),
    "one": ("left", ["first"], ""),
    "two": ("right", ["first"], ""),
    "last": ("join", ["one", "two"], ""),
}
SETTING = "batching: {max_batch: 2}\ninstances: {cpu: 2}\n"
BOUND = 0.15
BLOCK_S = 5.0
QUANTILES = (50.0, 99.0)


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds; `low` and `high` bound the measured quantile."""

    share: float
    requests: int
    percent: float
    measured: float
    low: float
    high: float
    simulated: float

    @property
    def error(self) -> float:
        return self.simulated / self.measured - 1

    @property
    def holds(self) -> bool:
        return self.low <= self.simulated <= self.high or abs(self.error) <= BOUND


@contextmanager
def world(folder: Path, seconds: float) -> Iterator[tuple[Bed, World]]:
    """The pipeline, and what a profile has told of it."""
    write_sleepers(folder, COSTS, {"all": NODES}, dict.fromkeys(COSTS, SETTING))
    workspace = read_workspace(folder)
    samples = [Sample("one", {}, SAMPLE_INPUTS, 1, {})]
    with private_tree(workspace) as root:
        prepared = prepare(workspace, ["all"], root, lambda _: None)
        bed = Bed(workspace, prepared, "all", samples, Progress(lambda *_: None))
        options = Options(Slo("p99", 99.0, 1.0), seconds=seconds, max_batch=4)
        yield bed, world_of(profile_of(bed, options))


def rows_of(bed: Bed, here: World, share: float, count: int, seed: int) -> list[Row]:
    """About `count` requests at that share of the capacity, measured and simulated."""
    rate = share * capacity(here.nodes, here.costs, bed.settings)
    seconds = count / rate
    profile = OpenLoop("rate", (Phase(seconds, rate, rate),))
    due = list(send_times(profile, Arrivals.POISSON, seed))
    with bed.serving(bed.settings) as (server, _):
        recorder = offer(server.grpc, "all", due, seconds)
    if recorder.whole.failed:
        raise WorldError(f"requests failed: {dict(recorder.whole.errors)}")
    took = simulate(here.nodes, here.costs, bed.settings, due, here.overhead)
    rows = []
    for percent in QUANTILES:
        low, high = interval(recorder.pairs, percent, seed)
        measured = quantile(sorted(latency for _, latency in recorder.pairs), percent / 100)
        simulated = quantile(sorted(took), percent / 100)
        values = (n * 1000 for n in (measured, low, high, simulated))
        rows.append(Row(share, len(due), percent, *values))
    return rows


def interval(pairs: Sequence[Pair], percent: float, seed: int) -> tuple[float, float]:
    """95 %, by drawing blocks of neighbours: latencies of a queue depend on each other."""
    blocks: dict[int, list[float]] = {}
    for due, latency in pairs:
        blocks.setdefault(int(due / BLOCK_S), []).append(latency)
    rng, listed, share = random.Random(seed), list(blocks.values()), percent / 100
    drawn = sorted(
        quantile(sorted(t for block in rng.choices(listed, k=len(listed)) for t in block), share)
        for _ in range(200)
    )
    return drawn[4], drawn[195]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.7, 0.85])
    parser.add_argument("--requests", type=int, default=10_500, help="for each share")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}", flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), 8.0) as (bed, here):
        for name, cost in here.costs.items():
            print(f"{name}: {cost.fixed * 1e3:.2f} + {cost.per_row * 1e3:.2f} n ms a batch")
        for number, share in enumerate(arguments.shares):
            for row in rows_of(bed, here, share, arguments.requests, number + 1):
                print(
                    f"{row.share:.0%} of capacity, {row.requests} requests: p{row.percent:g} "
                    f"measured {row.measured:.1f} ms [{row.low:.1f}, {row.high:.1f}], simulated "
                    f"{row.simulated:.1f} ms ({row.error:+.1%}) {'' if row.holds else 'MISSED'}",
                    flush=True,
                )
                rows.append(row)
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
