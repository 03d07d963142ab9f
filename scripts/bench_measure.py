"""CPU time of a process tree, medians with intervals, pairs in turn, and the circumstances."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def process_table() -> Iterator[tuple[int, int, float]]:
    """(pid, parent, CPU milliseconds of user and system) of every live process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # ended meanwhile
        fields = text[text.rindex(")") + 2 :].split()
        yield int(entry.name), int(fields[1]), (int(fields[11]) + int(fields[12])) * TICK_MS


def tree_cpu_ms(root: int) -> float:
    """CPU time so far of `root` and all that descends from it."""
    table = {pid: (parent, spent) for pid, parent, spent in process_table()}
    return sum(spent for pid, (_, spent) in table.items() if descends(pid, root, table))


def descends(pid: int, root: int, table: dict[int, tuple[int, float]]) -> bool:
    while pid in table and pid != root:
        pid = table[pid][0]
    return pid == root


@dataclass(frozen=True, slots=True)
class Estimate:
    """Median with an interval of at least 95 %, from order statistics: no distribution assumed."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def estimate(values: Sequence[float]) -> Estimate:
    ordered = sorted(values)
    count = len(ordered)
    cut = 0
    while 2 * sum(math.comb(count, k) for k in range(cut + 1)) / 2**count <= 0.05:
        cut += 1
    first = max(0, cut - 1)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Estimate(median, ordered[first], ordered[count - 1 - first])


def interleaved(pairs: int, one: Callable[[], A], other: Callable[[], B]) -> Iterator[tuple[A, B]]:
    """Both sides `pairs` times, taking turns in going first, so that drift cancels out."""
    for turn in range(pairs):
        if turn % 2 == 0:
            first = one()
            yield first, other()
        else:
            second = other()
            yield one(), second


def circumstances(release: str) -> dict[str, str]:
    """When, on what and with which versions is measured; `release` is Triton's."""
    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cpu = named[1] if named else platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "numpy"))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{len(os.sched_getaffinity(0))} cores of {cpu}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "versions": f"Triton {release}; in process Python {platform.python_version()}, {packages}",
    }
