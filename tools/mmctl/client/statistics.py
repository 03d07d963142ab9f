"""What a Triton counts of its models, and what came between two looks at it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Of one version since it was loaded. Times are the sum over its requests, in ns.

    `rows` has all rows of all requests, `executions` how often an instance worked; `batches` how
    often on so many rows, `batch_ns` the sum of what that took. Ensembles have no executions.
    """

    model: str
    version: str
    requests: int = 0
    failed: int = 0
    rows: int = 0
    executions: int = 0
    total_ns: int = 0
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    cache_hits: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)
    batch_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def mean_batch(self) -> float | None:
        return self.rows / self.executions if self.executions else None

    def per_request_ms(self, ns: int) -> float | None:
        """The mean over the requests that were answered."""
        answered = self.requests - self.failed
        return ns / answered / 1e6 if answered > 0 else None


def statistics_of(message: Any) -> tuple[ModelStatistics, ...]:
    """Of a ModelStatisticsResponse."""
    return tuple(_of(model) for model in message.model_stats)


def _of(model: Any) -> ModelStatistics:
    counts = model.inference_stats
    return ModelStatistics(
        model=model.name,
        version=model.version,
        requests=counts.success.count + counts.fail.count,
        failed=counts.fail.count,
        rows=model.inference_count,
        executions=model.execution_count,
        total_ns=counts.success.ns,
        queue_ns=counts.queue.ns,
        input_ns=counts.compute_input.ns,
        infer_ns=counts.compute_infer.ns,
        output_ns=counts.compute_output.ns,
        cache_hits=counts.cache_hit.count,
        batches={b.batch_size: b.compute_infer.count for b in model.batch_stats},
        batch_ns={
            b.batch_size: b.compute_input.ns + b.compute_infer.ns + b.compute_output.ns
            for b in model.batch_stats
        },
    )


_COUNTERS = (
    "requests", "failed", "rows", "executions", "total_ns", "queue_ns", "input_ns", "infer_ns",
    "output_ns", "cache_hits",
)  # fmt: skip


def between(
    before: Sequence[ModelStatistics], after: Sequence[ModelStatistics]
) -> tuple[ModelStatistics, ...]:
    """What came of each version that was asked anything between two looks. One that was loaded
    again meanwhile counts from there.
    """
    known = {(stats.model, stats.version): stats for stats in before}
    found = (
        _since(stats, known.get((stats.model, stats.version), _nothing(stats))) for stats in after
    )
    return tuple(stats for stats in found if stats.requests or stats.executions)


def _nothing(stats: ModelStatistics) -> ModelStatistics:
    return ModelStatistics(stats.model, stats.version)


def _since(now: ModelStatistics, then: ModelStatistics) -> ModelStatistics:
    if any(getattr(now, name) < getattr(then, name) for name in _COUNTERS):
        then = _nothing(now)
    more = {size: count - then.batches.get(size, 0) for size, count in now.batches.items()}
    counted = {name: getattr(now, name) - getattr(then, name) for name in _COUNTERS}
    batches = {size: count for size, count in sorted(more.items()) if count > 0}
    batch_ns = {size: now.batch_ns.get(size, 0) - then.batch_ns.get(size, 0) for size in batches}
    return replace(now, batches=batches, batch_ns=batch_ns, **counted)


def mean_batches(counted: Iterable[ModelStatistics]) -> dict[str, float]:
    """Rows per execution by model, over its versions; nothing of what has no executions."""
    rows: Counter[str] = Counter()
    executions: Counter[str] = Counter()
    for stats in counted:
        rows[stats.model] += stats.rows
        executions[stats.model] += stats.executions
    return {model: rows[model] / count for model, count in executions.items() if count}
