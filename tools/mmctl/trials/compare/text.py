"""Numbers -> cells: one list of lines that terminal and HTML show alike, and JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmctl.trials.compare import Objective
from mmctl.trials.compare.objective import Recommendation
from mmctl.trials.compare.stats import Estimate
from mmctl.trials.compare.table import Comparison, Row

DIGITS = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """`ratio` is to FP32, None where there is none. `detail` is an interval."""

    text: str
    ratio: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity, a cell for every variant. `less` says whether less of it is better."""

    title: str
    cells: tuple[Cell, ...]
    less: bool = True


def lines_of(rows: Sequence[Row]) -> list[Line]:
    """The table, variants in columns. Latency at the best batch has no ratio: batches differ."""
    return [
        _line("file size", [Cell(_mb(r.variant.bytes), r.ratios.size) for r in rows]),
        _line("load time", [_cell(r.load_ms, "ms", r.ratios.load) for r in rows]),
        *_speed_lines(rows),
        _line("peak memory", [Cell(_mb(r.memory_bytes), r.ratios.memory) for r in rows]),
        *_accuracy_lines(rows),
    ]


def _speed_lines(rows: Sequence[Row]) -> list[Line]:
    batched = any(row.best.batch for row in rows)
    at_one = " at batch 1" if batched else ""
    lines = [
        _line(f"p50{at_one}", [_cell(r.one.p50_ms, "ms", r.ratios.latency) for r in rows]),
        _line(f"p99{at_one}", [Cell(_ms(r.one.p99_ms)) for r in rows]),
        _line(f"CPU{at_one}", [_cell(r.one.cpu_ms, "ms", r.ratios.cpu) for r in rows]),
    ]
    if batched:
        lines += [
            _line("best batch", [Cell(str(r.best.batch)) for r in rows]),
            _line("p50 at best", [_cell(r.best.p50_ms, "ms") for r in rows]),
            _line("p99 at best", [Cell(_ms(r.best.p99_ms)) for r in rows]),
            _line("CPU at best", [_cell(r.best.cpu_ms, "ms") for r in rows]),
        ]
    rates = [_cell(r.best.rows_s, "rows/s", r.ratios.throughput) for r in rows]
    return [*lines, _line("throughput", rates, less=False)]


def _accuracy_lines(rows: Sequence[Row]) -> list[Line]:
    """A line for each metric that a variant was judged by."""
    metrics = dict.fromkeys(one.metric for row in rows for one in row.variant.accuracy)
    return [_line(metric, [_accuracy(r, metric) for r in rows], less=False) for metric in metrics]


def _accuracy(row: Row, metric: str) -> Cell:
    found = next((one for one in row.variant.accuracy if one.metric == metric), None)
    if found is None:
        return Cell("-")
    text = f"{found.value:.{DIGITS}g}{'' if found.within else ' refused'}"
    certain = found.low == found.value == found.high
    return Cell(
        text, detail="" if certain else f"{found.low:.{DIGITS}g} to {found.high:.{DIGITS}g}"
    )


def _line(title: str, cells: Sequence[Cell], *, less: bool = True) -> Line:
    return Line(title, tuple(cells), less)


def _cell(value: Estimate, unit: str, ratio: Estimate | None = None) -> Cell:
    detail = f"{_number(value.low)} to {_number(value.high)}"
    return Cell(f"{_number(value.median)} {unit}", ratio.median if ratio else None, detail)


def _number(value: float) -> str:
    """Three digits, and whole numbers beyond a hundred."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ms(value: float) -> str:
    return f"{_number(value)} ms"


def _mb(value: float) -> str:
    return f"{_number(value / 1e6)} MB"


def facts_of(comparison: Comparison) -> dict[str, str]:
    """What holds for the model or the run as a whole, by name."""
    work = comparison.work
    most = max(work.by_operator, key=work.by_operator.__getitem__, default="nothing")
    return {
        "work": f"{work.gflops:.3g} GFLOPs each request (2 x MAC, batch 1, mostly {most}): "
        f"{work.size}",
        **{name: str(value) for name, value in comparison.circumstances.items()},
    }


def advice_of(recommendation: Recommendation, objective: Objective) -> list[str]:
    return [
        f"recommended for {objective}: {recommendation.title}, because {recommendation.why}",
        *(f"not {title}: {why}" for title, why in recommendation.passed_over.items()),
    ]


def values_of(
    comparison: Comparison, recommendation: Recommendation, objective: Objective
) -> dict[str, object]:
    """The same as JSON: milliseconds, bytes, rows a second."""
    work = comparison.work
    return {
        "model": comparison.model,
        "work": {"gflops": work.gflops, "class": work.size, "macs": dict(work.by_operator)},
        "variants": [_row_values(row) for row in comparison.rows],
        "objective": str(objective),
        "recommended": {
            "variant": recommendation.name,
            "why": recommendation.why,
            "passed_over": dict(recommendation.passed_over),
        },
        "notes": list(comparison.notes),
        "circumstances": dict(comparison.circumstances),
    }


def _row_values(row: Row) -> dict[str, Any]:
    variant = row.variant
    return {
        "variant": variant.name,
        "title": variant.title,
        "precision": variant.precision,
        "device": variant.device,
        "experimental": variant.experimental,
        "bytes": variant.bytes,
        "load_ms": asdict(row.load_ms),
        "memory_bytes": row.memory_bytes,
        "at_one": asdict(row.one),
        "at_best": asdict(row.best),
        "accuracy": [asdict(one) for one in variant.accuracy],
        "refusal": variant.refusal,
        "ratios": asdict(row.ratios),
    }
