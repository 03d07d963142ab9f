"""How much load `mmctl bench` offers from one core before it is late itself.

    scripts/bench_engine                       500 to 4000 requests a second
    scripts/bench_engine 2000 --seconds 30     one rate, longer
    scripts/bench_engine --json > now.json     to be compared later

Sends small requests (64 fp32) over gRPC at even times to a model that gives them back, on an
embedded Triton that has all cores but one: the last one is the engine's alone, unless other work of
this machine takes it. A rate is kept when all requests were sent, 99 of 100 of them at most 5 ms
late, and all were answered. `CPU` is the engine's share of its core.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_measure import Table, circumstances, in_process, parser_of, say
from echoes import write_echo

from mmctl.inference import InferRequest
from mmctl.loadtest.bench import Asked, Plan, Progress, Server, measure
from mmctl.loadtest.result import LATE_MS
from mmctl.loadtest.schedule import Arrivals, OpenLoop, Phase
from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.tensors import DType
from mmctl.triton.config import DynamicBatching
from mmctl.triton.releases import EMBEDDED
from mmctl.workspace import read_workspace

ROOT = Path(__file__).resolve().parent.parent
RATES = (500, 1000, 2000, 3000, 4000)
WIDTH = 64
BATCH = 64


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. Times in milliseconds."""

    rate: int
    offered: int
    completed: int
    throughput: float
    lag_p50: float
    lag_p99: float
    latency_p50: float
    latency_p99: float
    cpu_share: float
    us_per_request: float
    kept: bool

    def __str__(self) -> str:
        return (
            f"{self.rate:>6} {self.offered:>8} {self.completed:>8} {self.throughput:>9.0f} "
            f"{self.lag_p50:>8.2f} {self.lag_p99:>8.2f} {self.latency_p50:>8.2f} "
            f"{self.latency_p99:>8.2f} {self.cpu_share:>6.0%} {self.us_per_request:>6.0f} "
            f"{'yes' if self.kept else 'no':>5}"
        )


HEADER = (
    f"{'rate':>6} {'offered':>8} {'answered':>8} {'answers/s':>9} {'lag p50':>8} {'p99':>8} "
    f"{'lat. p50':>8} {'p99':>8} {'CPU':>6} {'us':>6} {'kept':>5}"
)


def measured(server: Server, rate: int, seconds: float) -> Row:
    asked = Asked([InferRequest("echo", {"x": np.ones((1, WIDTH), np.float32)})], [{}])
    profile = OpenLoop(f"rate:{rate}", (Phase(seconds, rate, rate),))
    plan = Plan(profile, Arrivals.CONSTANT)
    told = measure(server, asked, plan, {}, Progress(lambda *_: None)).told()
    lag, latency, cpu = told["send_lag_ms"], told["latency_ms"], told["cpu"]["client_seconds"]
    whole = told["completed"] == told["offered"] == round(rate * seconds)
    return Row(
        rate=rate,
        offered=told["offered"],
        completed=told["completed"],
        throughput=told["throughput"],
        lag_p50=lag["p50"],
        lag_p99=lag["p99"],
        latency_p50=latency["p50"],
        latency_p99=latency["p99"],
        cpu_share=cpu / told["levels"][0]["seconds"],
        us_per_request=cpu / told["offered"] * 1e6,
        kept=whole and lag["p99"] <= LATE_MS,
    )


def apart() -> tuple[set[int], set[int]]:
    """Cores for the server, and the one for the engine; the same one where there is no other."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[:-1] or cores), {cores[-1]}


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("rates", nargs="*", type=int, default=RATES, metavar="RATE")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each rate")
    return parser.parse_args()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    asked = arguments()
    workspace = read_workspace(ROOT)
    runtime = ensure_runtime(workspace, say)
    servers, engines = apart()
    around = circumstances(f"Triton {EMBEDDED}; " + in_process("grpcio", "numpy"))
    with tempfile.TemporaryDirectory(prefix="mmctl-bench-") as name:
        write_echo(Path(name), "echo", DType.FP32, WIDTH, BATCH, DynamicBatching())
        os.sched_setaffinity(0, servers)
        with EmbeddedTriton.start(
            runtime, Path(name), state=workspace.state, private=True, say=say
        ) as triton:
            os.sched_setaffinity(0, engines)
            table: Table[Row] = Table(around, HEADER, json=asked.json)
            server = Server(triton.grpc, triton.headers)
            for rate in asked.rates:
                table.add(measured(server, rate, asked.seconds))
    table.end(seconds=asked.seconds, width=WIDTH)


if __name__ == "__main__":
    main()
