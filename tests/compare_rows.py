"""Measurements for tests, made up."""

from __future__ import annotations

from mmctl.exporters.macs import Macs
from mmctl.trials.compare.table import Accuracy, Comparison, Measured, Turn, Variant, rows_of

ROUNDS = 10


def accuracy(value: float = 0.995, *, within: bool = True) -> Accuracy:
    return Accuracy(
        "cosine of vector", value, value - 0.001, value + 0.001, within, "at least 0.99"
    )


def measured(
    name: str,
    ms: float,
    *,
    best_batch: int = 8,
    best_ms: float | None = None,
    size: int = 100_000_000,
    judged: Accuracy | None = None,
    experimental: bool = False,
    noise: float = 0.0,
) -> Measured:
    """`noise` is how far rounds are from each other, as a share."""
    turns = [ms * (1 + noise * (index % 2)) for index in range(ROUNDS)]
    at_best = best_ms or 4 * ms
    return Measured(
        variant=Variant(
            name,
            TITLES.get(name, name),
            name.partition("-")[0],
            f"{name}.onnx",
            size,
            (judged or accuracy(),),
            experimental=experimental,
        ),
        best_batch=best_batch,
        at_one=[Turn((value, value, value), 6 * value) for value in turns],
        at_best=[Turn((at_best,), 2 * at_best)] * ROUNDS,
        load_ms=[10 * ms] * 6,
        memory_bytes=2 * size,
    )


TITLES = {"fp32": "FP32", "fp16": "FP16", "int8": "INT8, dynamic", "int4": "INT4"}


def comparison(rows: list[Measured], *notes: str) -> Comparison:
    circumstances = {"date": "2026-01-02T03:04:05+00:00", "machine": "2 cores of <a CPU>"}
    work = Macs({"MatMul": 900_000_000, "Conv": 100_000_000})
    return Comparison("net", work, rows_of(rows), notes, circumstances)
