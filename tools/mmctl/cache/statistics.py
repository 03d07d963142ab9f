"""What the caches have done, by model and level: counted here, added up and shown anywhere.

A snapshot is plain data, `{model: {level: {count: number}}}`; `merge` adds up those of many
processes, `prometheus` writes one as text. Levels are those of CacheNote; of "none" are the
answers that the model itself had to give.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Snapshot: TypeAlias = dict[str, dict[str, dict[str, float]]]

COUNTS = {
    "lookups": "Requests that looked here.",
    "hits": "Requests that were answered from here.",
    "coalesced": "Requests that another caller's computation answered.",
    "stale": "Hits that were old, while a new answer was fetched.",
    "negative": "Errors that were given again.",
    "bypass": "Requests that no cache may answer.",
    "filled": "Answers that were kept.",
    "refused": "Answers that were not kept: too large, or of another version.",
    "unreadable": "Answers in the store that were damaged or not ours.",
    "evicted_size": "Answers that left for want of room.",
    "evicted_ttl": "Answers that left when their time was up.",
    "evicted_epoch": "Answers that left after a deploy or by a command.",
    "probes": "Hits that were computed nevertheless, to learn how many are wrong.",
    "disagreements": "Probes whose answer was another one.",
    "saved_ms": "Time that callers did not wait.",
    "added_ms": "Time that lookups took which found nothing.",
}
"""Everything that only grows, and what it says."""

GAUGES = {
    "bytes": "Memory that answers take now.",
    "unproven": "1 when the model is known by its version alone, without a content digest.",
    "error_upper_95": "Share of wrong hits, at most, with 95 % confidence.",
    "embed_p50_ms": "Time to embed a text, median.",
    "embed_p99_ms": "Time to embed a text, 99th percentile.",
    "search_p50_ms": "Time to search the index, median.",
    "search_p99_ms": "Time to search the index, 99th percentile.",
    "compute_p50_ms": "Time of the model, median.",
    "compute_p99_ms": "Time of the model, 99th percentile.",
}
"""Everything that is as it is now. Of many processes bytes add up; of all else the worst counts."""

REMEMBERED = 512
"""Times of which the percentiles are taken."""

_NEWEST = 0.05


class Statistics:
    """Counts of one process. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], dict[str, float]] = {}
        self._times: dict[tuple[str, str, str], deque[float]] = {}
        self._means: dict[tuple[str, str, str], float] = {}

    def count(self, model: str, level: str, **more: float) -> None:
        """Add to counts, by the names of COUNTS."""
        with self._lock:
            self._add(model, level, more)

    def took(self, model: str, level: str, what: str, ms: float) -> None:
        """`what` is "embed", "search" or "compute"."""
        with self._lock:
            self._remember((model, level, what), ms)

    def ran(self, model: str, ms: float, *, added_ms: float, kept: bool) -> None:
        """A request that the model had to answer, in `ms`, after a lookup of `added_ms`."""
        with self._lock:
            self._add(model, "exact", {"lookups": 1, "added_ms": added_ms})
            self._add(model, "none", {"lookups": 1, "filled" if kept else "refused": 1})
            self._remember((model, "none", "compute"), ms)

    def _add(self, model: str, level: str, more: Mapping[str, float]) -> None:
        counts = self._counts.get((model, level))
        if counts is None:
            counts = self._counts[model, level] = dict.fromkeys(COUNTS, 0)
        for name, number in more.items():
            counts[name] += number

    def _remember(self, key: tuple[str, str, str], ms: float) -> None:
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = deque(maxlen=REMEMBERED)
            self._means[key] = ms
        times.append(ms)
        self._means[key] += (ms - self._means[key]) * _NEWEST

    def mean_ms(self, model: str, level: str, what: str) -> float:
        """Of the last times, the newest counting most; 0 when there are none."""
        return self._means.get((model, level, what), 0.0)

    def snapshot(self, gauges: Snapshot | None = None) -> Snapshot:
        """All counts now, with `gauges` that others know."""
        with self._lock:
            found: Snapshot = {}
            for (model, level), counts in self._counts.items():
                found.setdefault(model, {})[level] = dict(counts)
            for (model, level, what), times in self._times.items():
                into = found.setdefault(model, {}).setdefault(level, dict.fromkeys(COUNTS, 0))
                into[f"{what}_p50_ms"] = percentile(times, 0.5)
                into[f"{what}_p99_ms"] = percentile(times, 0.99)
        for model, levels in (gauges or {}).items():
            for level, values in levels.items():
                found.setdefault(model, {}).setdefault(level, {}).update(values)
        return found


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Those of many processes as one."""
    merged: Snapshot = {}
    for snapshot in snapshots:
        for model, levels in snapshot.items():
            for level, counts in levels.items():
                into = merged.setdefault(model, {}).setdefault(level, {})
                for name, number in counts.items():
                    add = max if name in GAUGES and name != "bytes" else _sum
                    into[name] = add(into[name], number) if name in into else number
    return merged


def prometheus(snapshot: Snapshot) -> str:
    """The text that Prometheus reads, with one family per count."""
    lines: list[str] = []
    rows = [
        (f'model="{_escaped(model)}",level="{_escaped(level)}"', counts)
        for model, levels in sorted(snapshot.items())
        for level, counts in sorted(levels.items())
    ]
    for table, kind in ((COUNTS, "counter"), (GAUGES, "gauge")):
        for name, meaning in table.items():
            family = f"mmctl_cache_{name}" + ("_total" if kind == "counter" else "")
            samples = [
                f"{family}{{{labels}}} {counts[name]:.10g}"
                for labels, counts in rows
                if name in counts
            ]
            if samples:
                lines += [f"# HELP {family} {meaning}", f"# TYPE {family} {kind}", *samples]
    return "".join(f"{line}\n" for line in lines)


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that is not below `share` of them."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _sum(a: float, b: float) -> float:
    return a + b


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
