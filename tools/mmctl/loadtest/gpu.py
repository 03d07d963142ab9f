"""What a server's GPUs did while a load ran, by its metrics. Nothing where it has none."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

EVERY_S = 1.0
"""Triton itself looks every 2 s unless it is told otherwise."""
_ANSWER_S = 2.0
_LINE = re.compile(r'^(nv_(?:gpu|energy)_\w+)\{[^}]*gpu_uuid="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)

Sample = Mapping[str, Mapping[str, float]]
"""Values by GPU and metric."""


def gpus_of(metrics: str) -> dict[str, dict[str, float]]:
    """The metrics of each GPU in a text of Prometheus' form. Pure."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for name, gpu, value in _LINE.findall(metrics):
        found[gpu][name] = float(value)
    return dict(found)


def told(samples: Sequence[Sample]) -> dict[str, Any] | None:
    """Of each GPU its use as a share, memory in GiB and power in watts, over all looks. Pure."""
    gpus = sorted({gpu for sample in samples for gpu in sample})
    if not gpus:
        return None
    return {"looks": len(samples), "gpus": [_told(gpu, samples) for gpu in gpus]}


def _told(gpu: str, samples: Sequence[Sample]) -> dict[str, Any]:
    def values(metric: str) -> list[float]:
        known = (sample.get(gpu, {}).get(metric) for sample in samples)
        return [value for value in known if value is not None]

    def mean(metric: str) -> float | None:
        return round(sum(found) / len(found), 4) if (found := values(metric)) else None

    def most(metric: str, unit: float = 1.0) -> float | None:
        return round(max(found) / unit, 4) if (found := values(metric)) else None

    energy = values("nv_energy_consumption")
    return {
        "uuid": gpu,
        "utilization": {"mean": mean("nv_gpu_utilization"), "max": most("nv_gpu_utilization")},
        "memory_used_gib": most("nv_gpu_memory_used_bytes", 2**30),
        "memory_total_gib": most("nv_gpu_memory_total_bytes", 2**30),
        "power_watts": {"mean": mean("nv_gpu_power_usage"), "max": most("nv_gpu_power_usage")},
        "energy_joules": round(energy[-1] - energy[0], 3) if energy else None,
    }


@dataclass(slots=True)
class Watched:
    samples: list[Sample] = field(default_factory=list)

    def told(self) -> dict[str, Any] | None:
        return told(self.samples)


@contextmanager
def watching(address: str | None) -> Iterator[Watched]:
    """Looks at a server's metrics (host:port) once a second while the block runs; not at all after
    a first look that shows no GPU.
    """
    watched = Watched()
    first = _look(address) if address is not None else {}
    if not first:
        yield watched
        return
    watched.samples.append(first)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(EVERY_S):
            if sample := _look(address):
                watched.samples.append(sample)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        ended.set()
        thread.join(_ANSWER_S)


def _look(address: str | None) -> Sample:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=_ANSWER_S) as answer:
            return gpus_of(answer.read().decode(errors="replace"))
    except (OSError, ValueError):
        return {}
