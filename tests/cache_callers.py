"""A process with callers of one answer through a cache: run with a request as JSON.

Says `ready`, waits for a line, then `computing` whenever it computes, and at its end what came of
its callers. Computations are counted in the store.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

import numpy as np

from mmctl.cache.cache import Cache
from mmctl.cache.effects import Pause
from mmctl.cache.keys import Identity
from mmctl.cache.stores.redis import SharedStore
from mmctl.effects import Steps, adrive, by_type, drive
from mmctl.inference import InferRequest, InferResponse

COUNT = "computations"


@dataclass(frozen=True, slots=True)
class Callers:
    """`count` callers, in tasks or in threads, of the same answer, which takes `seconds`."""

    url: str
    count: int = 50
    tasks: bool = False
    seconds: float = 0.08


@contextmanager
def started(*asked: Callers) -> Iterator[list[subprocess.Popen[str]]]:
    """A process for each, ready to begin; none is left after the block."""
    with ExitStack() as stack:
        processes = []
        for callers in asked:
            process = subprocess.Popen(
                [sys.executable, __file__, json.dumps(asdict(callers))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(_end, process)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def answers_of(process: subprocess.Popen[str]) -> list[int]:
    """Which computation gave each caller its answer."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    answers: list[int] = json.loads(out.splitlines()[-1])
    return answers


def main() -> None:
    asked = Callers(**json.loads(sys.argv[1]))
    store = SharedStore(asked.url)
    request = InferRequest("tag", {"x": np.ones((1, 2), np.float32)})

    def compute(_: InferRequest) -> Steps[InferResponse]:
        number = store.run(("INCR", COUNT))[0]
        print("computing", flush=True)
        yield Pause(asked.seconds)
        return InferResponse({"number": np.array([number])}, "tag", "1")

    with Cache(tenant="test", store=asked.url) as cache:

        def steps() -> Steps[int]:
            response, _ = yield from cache.steps(Identity("tag", "1", "digest"), request, compute)
            return int(response.outputs["number"][0])

        store.run(("PING",))
        print("ready", flush=True)
        sys.stdin.readline()
        called = _in_tasks if asked.tasks else _in_threads
        answers = called(asked.count, cache, steps)
    print(json.dumps(answers), flush=True)


def _in_threads(count: int, cache: Cache, steps: Callable[[], Steps[int]]) -> list[int]:
    perform, barrier = by_type(cache.performers), threading.Barrier(count)

    def call() -> int:
        barrier.wait()
        return drive(steps(), perform)

    with ThreadPoolExecutor(count) as pool:
        return [done.result() for done in [pool.submit(call) for _ in range(count)]]


def _in_tasks(count: int, cache: Cache, steps: Callable[[], Steps[int]]) -> list[int]:
    perform = by_type(cache.async_performers)

    async def calls() -> list[int]:
        return await asyncio.gather(*(adrive(steps(), perform) for _ in range(count)))

    return asyncio.run(calls())


if __name__ == "__main__":
    main()
