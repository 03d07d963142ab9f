"""The process of one variant: `python -m mmctl.trials.compare.worker`.

Its arguments are the model's file, the request's, threads, device and the largest batch. It takes
orders, a line of JSON each, and answers each with one. Every variant has a process of its
own, because memory is a process's. Nothing runs here unless an order says so.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from mmctl.tensors import Array
from mmctl.trials.compare.sessions import open_on
from mmctl.trials.compare.table import Device


class Worker:
    def __init__(self, file: Path, request: Path, threads: int, device: Device, most: int) -> None:
        import onnxruntime  # noqa: F401 - its import is no part of a load

        with np.load(request) as arrays:
            self.request: dict[str, Array] = dict(arrays)
        self.open = partial(open_on, device, file, threads, self.request, most)
        self.session: Any = None
        self.idle_bytes = 0

    def load(self) -> dict[str, Any]:
        """A new session, in place of the one before."""
        self.session = None
        gc.collect()
        if not self.idle_bytes:
            self.idle_bytes = _status_bytes("VmRSS")
        start = time.perf_counter()
        self.session = self.open()
        return {"ms": (time.perf_counter() - start) * 1000}

    def run(self, batch: int, times: int) -> dict[str, Any]:
        """One untimed request, then the timed ones. `batch` 0: the model has no batch axis."""
        inputs = self._of(batch)
        self.session.run(None, inputs)
        ms = []
        cpu = time.process_time()
        for _ in range(times):
            start = time.perf_counter()
            self.session.run(None, inputs)
            ms.append((time.perf_counter() - start) * 1000)
        return {"ms": ms, "cpu_ms": (time.process_time() - cpu) * 1000}

    def memory(self) -> dict[str, Any]:
        """The most this process held so far, beyond what it held without a session."""
        return {"bytes": max(0, _status_bytes("VmHWM") - self.idle_bytes)}

    def _of(self, batch: int) -> dict[str, Array]:
        if not batch:
            return self.request
        return {
            name: array[[row % len(array) for row in range(batch)]]
            for name, array in self.request.items()
        }


def _status_bytes(field: str) -> int:
    found = re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "Linux has it for every process"
    return int(found[1]) * 1024


def main(words: list[str], orders: TextIO, answers: TextIO) -> None:
    file, request, threads, device, most = words
    where: Device = "tensorrt" if device == "tensorrt" else "cpu"
    worker = Worker(Path(file), Path(request), int(threads), where, int(most))
    doing: dict[str, Callable[..., dict[str, Any]]] = {
        "load": worker.load,
        "run": worker.run,
        "memory": worker.memory,
    }
    for line in orders:
        order = json.loads(line)
        try:
            answer = doing[order.pop("do")](**order)
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's have no common base
            answer = {"error": str(error).strip().partition("\n")[0] or type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # What native libraries print must not come between the answers.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1:], sys.stdin, channel)
