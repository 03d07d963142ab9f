"""This machine, and how much of it a run has used. Linux only, as mmctl is."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

_CPUCLOCK_SCHED = 2
"""Of Linux: with this, `(~pid << 3) | clock` is the clock of another process."""


def environment() -> dict[str, object]:
    """What a number measured here depends on."""
    import mmctl

    return {
        "cpu": cpu_name(_text_of(Path("/proc/cpuinfo"))),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "mmctl": mmctl.__version__,
        "gpus": list(_gpu_names()),
    }


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_name(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*: (.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def cpu_seconds(root: int) -> float:
    """CPU time so far of a process and all that descends from it and lives."""
    parents = dict(_parents())
    return sum(_cpu_of(pid) for pid in parents if _descends(pid, root, parents))


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _gpu_names() -> Iterator[str]:
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        if match := re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE):
            yield match[1].strip()


def _parents() -> Iterator[tuple[int, int]]:
    """(pid, parent) of every live process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # ended meanwhile
        yield int(entry.name), int(text[text.rindex(")") + 2 :].split()[1])


def _cpu_of(pid: int) -> float:
    """/proc/PID/stat has it in hundredths of a second only."""
    try:
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid]
    return pid == root
