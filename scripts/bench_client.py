"""What a call costs its caller: CPU time of mmctl's client against that of bare tritonclient.

    scripts/bench_client                       every section
    scripts/bench_client numbers --pairs 20    one of them, longer
    scripts/bench_client --json > now.json     to be compared later

Both send the same request of 1 KB over gRPC, one at a time, from this process to a model that gives
it back, and read the answer as an array. Sections: `numbers`, 256 fp32; `text`, one text; both over
`Client`, and `numbers_asyncio` over `AsyncClient`. `cached` is a hit of mmctl's own cache, where
bare tritonclient asks the model.

The sides of a pair take turns. A ratio of 1 means that the types, the checks and the typed answer
cost nothing. The server is another process and not counted. Intervals are of 95 % or more from
6 pairs on.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_measure import (
    Estimate,
    Table,
    circumstances,
    estimate,
    in_process,
    interleaved,
    parser_of,
    say,
)
from echoes import write_echo

from mmctl.cache.cache import Cache
from mmctl.client import AsyncClient, Client
from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.tensors import DType
from mmctl.workspace import read_workspace

ROOT = Path(__file__).resolve().parent.parent
BYTES = 1024
WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Section:
    """The two sides: each sends so many requests."""

    mmctl: Callable[[int], None]
    bare: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: CPU time of one request, and mmctl / bare."""

    section: str
    mmctl_us: Estimate
    bare_us: Estimate
    ratio: Estimate

    def __str__(self) -> str:
        mmctl, bare = (f"{e.median:.0f} [{e.low:.0f}, {e.high:.0f}]" for e in self.costs())
        return f"{self.section:<16} {mmctl:>18} {bare:>18} {self.ratio!s:>22}"

    def costs(self) -> tuple[Estimate, Estimate]:
        return self.mmctl_us, self.bare_us


HEADER = f"{'section':<16} {'mmctl us':>18} {'bare us':>18} {'ratio':>22}"


def measure(name: str, section: Section, pairs: int, requests: int) -> Row:
    def cost(side: Callable[[int], None]) -> float:
        before = time.process_time()
        side(requests)
        return (time.process_time() - before) * 1e6 / requests

    section.mmctl(WARM_UP)
    section.bare(WARM_UP)
    costs = list(interleaved(pairs, lambda: cost(section.mmctl), lambda: cost(section.bare)))
    return Row(
        name,
        estimate([mmctl for mmctl, _ in costs]),
        estimate([bare for _, bare in costs]),
        estimate([mmctl / bare for mmctl, bare in costs]),
    )


def sections(address: str, stack: ExitStack) -> dict[str, Section]:
    from tritonclient.grpc import InferenceServerClient

    client = stack.enter_context(Client(address))
    keeping = stack.enter_context(Client(address, cache=Cache(tenant="bench")))
    bare = stack.enter_context(InferenceServerClient(address))
    numbers = np.random.default_rng(0).standard_normal((1, BYTES // 4)).astype(np.float32)
    text = np.array([["x" * (BYTES - 4)]], object)
    runner = stack.enter_context(asyncio.Runner())
    own, other = runner.run(async_clients(address))
    stack.callback(lambda: runner.run(own.close()))
    stack.callback(lambda: runner.run(other.close()))
    return {
        "numbers": Section(
            lambda count: with_client(client, "numbers", numbers, count),
            lambda count: with_bare(bare, "numbers", numbers, count),
        ),
        "text": Section(
            lambda count: with_client(client, "text", text, count),
            lambda count: with_bare(bare, "text", text, count),
        ),
        "numbers_asyncio": Section(
            lambda count: runner.run(with_async_client(own, "numbers", numbers, count)),
            lambda count: runner.run(with_async_bare(other, "numbers", numbers, count)),
        ),
        "cached": Section(
            lambda count: with_client(keeping, "numbers", numbers, count),
            lambda count: with_bare(bare, "numbers", numbers, count),
        ),
    }


async def async_clients(address: str) -> tuple[AsyncClient, Any]:
    from tritonclient.grpc.aio import InferenceServerClient

    return AsyncClient(address), InferenceServerClient(address)


def with_client(client: Client, model: str, array: Any, count: int) -> None:
    for _ in range(count):
        assert client.infer(model, x=array).outputs["y"].shape == array.shape


def with_bare(client: Any, model: str, array: Any, count: int) -> None:
    for _ in range(count):
        assert client.infer(model, bare_inputs(array)).as_numpy("y").shape == array.shape


async def with_async_client(client: AsyncClient, model: str, array: Any, count: int) -> None:
    for _ in range(count):
        assert (await client.infer(model, x=array)).outputs["y"].shape == array.shape


async def with_async_bare(client: Any, model: str, array: Any, count: int) -> None:
    for _ in range(count):
        answer = await client.infer(model, bare_inputs(array))
        assert answer.as_numpy("y").shape == array.shape


def bare_inputs(array: Any) -> list[Any]:
    from tritonclient.grpc import InferInput

    asked = InferInput("x", list(array.shape), "BYTES" if array.dtype.kind == "O" else "FP32")
    asked.set_data_from_numpy(array)
    return [asked]


@contextmanager
def serving() -> Iterator[EmbeddedTriton]:
    workspace = read_workspace(ROOT)
    tree = Path(tempfile.mkdtemp(prefix="mmctl-bench-"))
    try:
        write_echo(tree, "numbers", DType.FP32, BYTES // 4, max_batch=4)
        write_echo(tree, "text", DType.STRING, 1, max_batch=4)
        runtime = ensure_runtime(workspace, say)
        with EmbeddedTriton.start(
            runtime, tree, state=workspace.state, private=True, say=say
        ) as server:
            yield server
    finally:
        shutil.rmtree(tree, ignore_errors=True)


SECTIONS = ("numbers", "text", "numbers_asyncio", "cached")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("sections", nargs="*", default=SECTIONS, metavar="SECTION")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=1000, help="of each side of a pair")
    asked = parser.parse_args()
    unknown: Sequence[str] = [name for name in asked.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section `{unknown[0]}`; there are {', '.join(SECTIONS)}")
    return asked


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    asked = arguments()
    with serving() as server, ExitStack() as stack:
        versions = f"Triton {server.info.release}; " + in_process("tritonclient", "grpcio", "numpy")
        around = circumstances(versions)
        table: Table[Row] = Table(around, HEADER, json=asked.json)
        known = sections(server.grpc, stack)
        for name in asked.sections:
            table.add(measure(name, known[name], asked.pairs, asked.requests))
    table.end(pairs=asked.pairs, requests=asked.requests)


if __name__ == "__main__":
    main()
