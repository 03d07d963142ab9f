"""What a load test has found: one JSON document, also of a load that was cut short. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmctl.client.statistics import ModelStatistics
from mmctl.errors import InputError
from mmctl.loadtest.record import Recorder, Slice, joined, slice_of

SCHEMA = 1
LATE_MS, LATE_SHARE = 5.0, 0.2


@dataclass(slots=True)
class Level:
    """A load at one number of callers; None in an open loop, which has one level."""

    callers: int | None
    recorder: Recorder
    seconds: float
    """How long it really took, which is less when it was cut short."""

    def told(self) -> dict[str, Any]:
        whole = self.recorder.whole
        return {
            "callers": self.callers,
            "seconds": round(self.seconds, 3),
            "offered": whole.offered,
            "completed": whole.completed,
            "failed": whole.failed,
            "throughput": _a_second(whole.completed, self.seconds),
            "latency_ms": whole.latency.told(),
        }


@dataclass(slots=True)
class Measured:
    """All that was measured. `about` says of what and how: pipeline, profile, environment."""

    about: Mapping[str, Any]
    levels: list[Level] = field(default_factory=list)
    nodes: Sequence[ModelStatistics] = ()
    wrong: Mapping[str, int] = field(default_factory=dict)
    checked: int | None = None
    """Answers that were compared with recorded ones; None when nobody asked for that."""
    cpu: Mapping[str, float | None] = field(default_factory=dict)
    gpu: Mapping[str, Any] | None = None
    quality: Mapping[str, Any] | None = None
    partial: str | None = None
    """Why it was cut short."""

    @property
    def whole(self) -> Slice:
        slices = [part for level in self.levels for part in level.recorder.slices]
        return joined(slices, sum(level.seconds for level in self.levels))

    def lateness(self) -> str | None:
        """Why the latencies are this machine's and not the server's, when they are."""
        for level in self.levels:
            lag = level.recorder.lag.quantile_ms(99)
            latency = level.recorder.whole.latency.quantile_ms(99)
            if lag is None or latency is None or level.callers is not None:
                continue
            if lag > LATE_MS and lag > LATE_SHARE * latency:
                return (
                    f"requests left up to {lag:.1f} ms late (p99), of a latency of {latency:.1f} "
                    "ms: this machine did not keep up with the load"
                )
        return None

    def told(self) -> dict[str, Any]:
        whole = self.whole
        return {
            "schema": SCHEMA,
            "kind": "bench",
            **self.about,
            "versions": {stats.model: stats.version for stats in self.nodes},
            "offered": whole.offered,
            "completed": whole.completed,
            "failed": whole.failed,
            "errors": dict(whole.errors.most_common()),
            "throughput": _a_second(whole.completed, whole.seconds),
            "latency_ms": whole.latency.told(),
            "send_lag_ms": self._lag(),
            "checked": self.checked,
            "wrong_answers": None if self.checked is None else sum(self.wrong.values()),
            "wrong": dict(self.wrong),
            "levels": [level.told() for level in self.levels],
            "slices": self._told_slices(),
            "nodes": [_node(stats) for stats in self.nodes],
            "cpu": dict(self.cpu),
            "gpu": self.gpu,
            "partial": self.partial,
            "quality": self.quality,
        }

    def _lag(self) -> dict[str, float | None]:
        slices = Recorder(1.0)
        for level in self.levels:
            slices.lag.merge(level.recorder.lag)
        return slices.lag.told()

    def _told_slices(self) -> list[dict[str, Any]]:
        """One after the other, as the levels were."""
        told: list[dict[str, Any]] = []
        began = 0.0
        for level in self.levels:
            for part in level.recorder.slices:
                if part.offered:
                    shown = part.told()
                    told.append({**shown, "start_s": round(began + part.start, 3)})
            began += level.recorder.seconds
        return told


def _a_second(count: int, seconds: float) -> float:
    return round(count / seconds, 3) if seconds else 0.0


def _node(stats: ModelStatistics) -> dict[str, Any]:
    return {
        "model": stats.model,
        "version": stats.version,
        "requests": stats.requests,
        "failed": stats.failed,
        "executions": stats.executions,
        "mean_batch": stats.mean_batch,
        "total_ms": stats.per_request_ms(stats.total_ns),
        "queue_ms": stats.per_request_ms(stats.queue_ns),
        "input_ms": stats.per_request_ms(stats.input_ns),
        "infer_ms": stats.per_request_ms(stats.infer_ns),
        "output_ms": stats.per_request_ms(stats.output_ns),
        "cache_hits": stats.cache_hits,
        "batches": {str(size): count for size, count in stats.batches.items()},
    }


def read_result(path: Path) -> dict[str, Any]:
    """A result as it was written. Raises InputError for any other file."""
    try:
        data = json.loads(path.read_text())
        if data["kind"] != "bench" or data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']} of `{data['kind']}`")
        for part in data["slices"]:
            slice_of(part)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: not a result of `mmctl bench --json` that this mmctl can read: {error}"
        ) from error
    return dict(data)


def slices_of(result: Mapping[str, Any]) -> list[Slice]:
    return [slice_of(part) for part in result["slices"]]
