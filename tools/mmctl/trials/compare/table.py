"""What was measured -> rows: absolutes, and beside them ratios to FP32. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mmctl.exporters.accuracy.options import Precision
from mmctl.exporters.macs import Macs
from mmctl.trials.compare.stats import Estimate, estimate, percentile, ratios

Device = Literal["cpu", "tensorrt"]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One metric of one output. `low` to `high` is the 95 % interval of `value`.

    `within` says whether the limit of model.yaml holds, and `doubt` why the data cannot tell.
    """

    metric: str
    value: float
    low: float
    high: float
    within: bool
    limit: str
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """A file of one precision, and where it runs. `refusal` is why it may not be served, whatever
    the metrics say: NaN, for example.
    """

    name: str
    title: str
    precision: Precision
    file: str
    bytes: int
    accuracy: tuple[Accuracy, ...] = ()
    refusal: str = ""
    device: Device = "cpu"
    experimental: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a variant: milliseconds of each request, and of CPU for all of them."""

    ms: tuple[float, ...]
    cpu_ms: float

    @property
    def p50_ms(self) -> float:
        return estimate(self.ms).median


@dataclass(frozen=True, slots=True)
class Measured:
    """All turns of a variant; those of variants that took turns have the same index."""

    variant: Variant
    best_batch: int
    at_one: Sequence[Turn]
    at_best: Sequence[Turn]
    load_ms: Sequence[float]
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Timing:
    """A request's latency and CPU time, and rows a second. `batch` is 0 without a batch axis."""

    batch: int
    requests: int
    p50_ms: Estimate
    p99_ms: float
    cpu_ms: Estimate
    rows_s: Estimate


@dataclass(frozen=True, slots=True)
class Ratios:
    """To FP32 of the same run. Of `latency`, `cpu`, `size`, `load` and `memory` less is better."""

    size: float
    load: Estimate
    latency: Estimate
    throughput: Estimate
    cpu: Estimate
    memory: float


@dataclass(frozen=True, slots=True)
class Row:
    """A variant as the table shows it. Without a batch axis `best` is `one`."""

    variant: Variant
    load_ms: Estimate
    memory_bytes: int
    one: Timing
    best: Timing
    ratios: Ratios


@dataclass(frozen=True, slots=True)
class Comparison:
    """All there is to show. `circumstances` say when, where and with what, by their name."""

    model: str
    work: Macs
    rows: Sequence[Row]
    notes: Sequence[str]
    circumstances: Mapping[str, Any]


def rows_of(measured: Sequence[Measured]) -> list[Row]:
    """Rows in the same order; the first one is FP32, which the others are compared with."""
    base = measured[0]
    return [
        Row(
            variant=one.variant,
            load_ms=estimate(one.load_ms),
            memory_bytes=one.memory_bytes,
            one=timing(min(1, one.best_batch), one.at_one),
            best=timing(one.best_batch, one.at_best),
            ratios=_ratios(one, base),
        )
        for one in measured
    ]


def timing(batch: int, turns: Sequence[Turn]) -> Timing:
    every = [ms for turn in turns for ms in turn.ms]
    return Timing(
        batch=batch,
        requests=len(every),
        p50_ms=estimate(_p50_ms(turns)),
        p99_ms=percentile(every, 0.99),
        cpu_ms=estimate(_cpu_ms(turns)),
        rows_s=estimate(_rows_s(batch, turns)),
    )


def _ratios(one: Measured, base: Measured) -> Ratios:
    return Ratios(
        size=one.variant.bytes / base.variant.bytes,
        load=ratios(one.load_ms, base.load_ms),
        latency=ratios(_p50_ms(one.at_one), _p50_ms(base.at_one)),
        throughput=ratios(
            _rows_s(one.best_batch, one.at_best), _rows_s(base.best_batch, base.at_best)
        ),
        cpu=ratios(_cpu_ms(one.at_one), _cpu_ms(base.at_one)),
        memory=one.memory_bytes / base.memory_bytes,
    )


def _p50_ms(turns: Sequence[Turn]) -> list[float]:
    return [turn.p50_ms for turn in turns]


def _cpu_ms(turns: Sequence[Turn]) -> list[float]:
    """Of each request, turn by turn."""
    return [turn.cpu_ms / len(turn.ms) for turn in turns]


def _rows_s(batch: int, turns: Sequence[Turn]) -> list[float]:
    """Rows a second, turn by turn."""
    return [1000 * max(1, batch) * len(turn.ms) / sum(turn.ms) for turn in turns]


def best_batch(rows_s: Mapping[int, float]) -> int:
    """The batch of the largest throughput; of equals the smaller, which answers sooner."""
    return max(sorted(rows_s), key=lambda batch: rows_s[batch])
