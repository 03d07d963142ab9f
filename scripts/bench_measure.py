"""CPU time of a process tree, medians with intervals, pairs in turn, and the circumstances."""

from __future__ import annotations

import math
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")
CPUCLOCK_SCHED = 2
"""Of Linux: with this, `(~pid << 3) | clock` is the clock of another process."""


def parents() -> Iterator[tuple[int, int]]:
    """(pid, parent) of every live process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # ended meanwhile
        yield int(entry.name), int(text[text.rindex(")") + 2 :].split()[1])


def tree_cpu_ms(root: int) -> float:
    """CPU time so far of `root` and all that descends from it."""
    table = dict(parents())
    return sum(cpu_ms(pid) for pid in table if descends(pid, root, table))


def cpu_ms(pid: int) -> float:
    """User and system time of a process; /proc/PID/stat has it in hundredths of a second only."""
    try:
        return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED) / 1e6
    except OSError:
        return 0.0  # ended meanwhile


def descends(pid: int, root: int, table: dict[int, int]) -> bool:
    while pid in table and pid != root:
        pid = table[pid]
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


def in_process(*packages: str) -> str:
    """Versions of what runs here and not in a server."""
    shown = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"in process Python {platform.python_version()}, {shown}"


def circumstances(versions: str) -> dict[str, str]:
    """When, on what and with which command is measured, beside the `versions`."""
    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cpu = named[1] if named else platform.machine()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{len(os.sched_getaffinity(0))} cores of {cpu}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "versions": versions,
        "command": shlex.join(sys.argv),
    }
