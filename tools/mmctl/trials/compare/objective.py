"""Which variant to serve for an objective, and why not the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mmctl.trials.compare import Objective
from mmctl.trials.compare.table import Accuracy, Row


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`passed_over` says of each other variant why it is not the one."""

    name: str
    title: str
    why: str
    passed_over: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Goal:
    """`cost` is what shall be small; `gains` whether a row is surely better than FP32."""

    cost: Callable[[Row], float]
    gains: Callable[[Row], bool]
    words: Callable[[Row], str]


GOALS: dict[Objective, _Goal] = {
    Objective.LATENCY: _Goal(
        cost=lambda row: row.one.p50_ms.median,
        gains=lambda row: row.ratios.latency.high < 1,
        words=lambda row: f"{row.ratios.latency.median:.2f} of FP32's latency at batch 1",
    ),
    Objective.THROUGHPUT: _Goal(
        cost=lambda row: -row.best.rows_s.median,
        gains=lambda row: row.ratios.throughput.low > 1,
        words=lambda row: f"{row.ratios.throughput.median:.2f} of FP32's throughput",
    ),
    Objective.SIZE: _Goal(
        cost=lambda row: row.variant.bytes,
        gains=lambda row: row.ratios.size < 1,
        words=lambda row: f"{row.ratios.size:.2f} of FP32's size",
    ),
}


def recommend(rows: Sequence[Row], objective: Objective) -> Recommendation:
    """Of the first row, FP32, and those of the others that may stand in for it."""
    goal = GOALS[objective]
    base = rows[0]
    barred = {row.variant.name: _bar(row) for row in rows[1:]}
    gaining = [row for row in rows[1:] if not barred[row.variant.name] and goal.gains(row)]
    chosen = min(gaining, key=goal.cost, default=base)
    return Recommendation(
        name=chosen.variant.name,
        title=chosen.variant.title,
        why=_why(chosen, goal)
        if gaining
        else f"no variant that may be served is better for {objective}",
        passed_over={
            row.variant.title: barred.get(row.variant.name) or goal.words(row)
            for row in rows[1:]
            if row is not chosen
        },
    )


def _bar(row: Row) -> str:
    """Why a variant is out of the question; empty when it is not."""
    variant = row.variant
    failed = [one for one in variant.accuracy if not one.within]
    if variant.refusal or failed:
        return variant.refusal or _shown(failed[0])
    if variant.precision == "fp16" and variant.device == "cpu":
        return "processors compute in FP32: a FP16 file is only converted back"
    if variant.experimental:
        return "an experiment"
    return "" if variant.accuracy else "its accuracy is not known"


def _why(row: Row, goal: _Goal) -> str:
    shown = [f"{_shown(one)}{one.doubt and ', but '}{one.doubt}" for one in row.variant.accuracy]
    return "; ".join([goal.words(row), *shown])


def _shown(one: Accuracy) -> str:
    """`cosine of vector 0.991 (95 %: 0.99 to 0.992), which is to be at least 0.99`."""
    interval = f"95 %: {one.low:.4g} to {one.high:.4g}"
    return f"{one.metric} {one.value:.4g} ({interval}), which is to be {one.limit}"
