"""What the processes that share a store have counted: told there by each, read there by anyone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmctl.cache.effects import Asked, Command
from mmctl.cache.statistics import Snapshot
from mmctl.cache.stores import names

KEPT_S = 24 * 3600
"""For so long the counts of a process that has ended are among those of all."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one process has counted. `at` is when it said so, in Unix seconds."""

    process: str
    at: float
    counts: Snapshot


def telling(process: str, counts: Snapshot, now: float) -> tuple[Command, ...]:
    """The commands that tell the store; `process` is a name that no other has."""
    told = json.dumps({"at": int(now), "counts": counts})
    return (("HSET", names.COUNTERS, process, told), ("EXPIRE", names.COUNTERS, KEPT_S))


def read_reports(store: Asked, now: float) -> list[Report]:
    """Those that were told within KEPT_S; older ones are removed, as is what nobody could have
    told. Raises StoreDown.
    """
    fields = store.run(("HGETALL", names.COUNTERS))[0]
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    reports = {process: _report(process, told) for process, told in found.items()}
    kept = [r for r in reports.values() if r is not None and now - r.at < KEPT_S]
    told = {report.process.encode() for report in kept}
    if gone := [process for process in found if process not in told]:
        store.run(("HDEL", names.COUNTERS, *gone))
    return sorted(kept, key=lambda report: (-report.at, report.process))


def _report(process: bytes, told: bytes) -> Report | None:
    try:
        said = json.loads(told)
        return Report(process.decode(), float(said["at"]), _snapshot(said["counts"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _snapshot(said: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Snapshot:
    return {
        model: {
            level: {name: float(number) for name, number in counts.items()}
            for level, counts in levels.items()
        }
        for model, levels in said.items()
    }
