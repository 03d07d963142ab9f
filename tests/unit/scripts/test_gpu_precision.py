"""`scripts/gpu_precision` on a machine without a GPU, and what it promises of numbers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_measure import LARGEST, Row, broken_promises, measure, on_cpu, too_far
from gpu_models import Variant
from onnx_samples import mlp, onnx_model

from mmctl.exporters.precision.base import Batch
from mmctl.tensors import Array

X = {"x": ("FLOAT", ["N", 4])}
Y = {"y": ("FLOAT", ["N", 4])}
FP32 = Row("net", "fp32", LARGEST, 2.0, 3.0, 16_000, 1.0, 1.0, "engine")
FP16 = replace(FP32, precision="fp16", rows_per_s=30_000, cosine_fp32=0.9995, cosine_file=0.9999)


def test_without_a_gpu_nothing_is_measured(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, root / "scripts" / "gpu_precision.py"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(root / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "skipped: no GPU\n")


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        pytest.param([FP32, FP16], [], id="kept"),
        pytest.param([FP32, replace(FP16, rows_per_s=15_000)], ["15000 rows/s"], id="slower"),
        pytest.param([FP32, replace(FP16, cosine_file=0.9)], ["cosine 0.90000"], id="far"),
        pytest.param([FP32, replace(FP16, cosine_fp32=0.4)], [], id="far from FP32 is only told"),
        pytest.param([FP32, replace(FP16, batch=1, rows_per_s=9)], [], id="batch 1 is only told"),
        pytest.param([], ["nothing was measured"], id="no rows"),
    ],
)
def test_promises_are_about_the_file_and_the_speed(rows: list[Row], broken: list[str]) -> None:
    found = broken_promises(rows)
    assert len(found) == len(broken)
    assert all(part in text for part, text in zip(broken, found, strict=True))


class OnCpu:
    """The same file on the CPU, in the place of a GPU."""

    title = "CPU"

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, inputs: Batch) -> Array:
        return on_cpu(self.path, inputs)


def test_a_row_is_measured_from_runs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "fp32.onnx"
    path.write_bytes(mlp())

    def draw(random: np.random.Generator, rows: int) -> Batch:
        return {"x": random.standard_normal((rows, 64)).astype(np.float32)}

    variant = Variant("fp32", path, (), draw)
    row = measure("mlp", variant, variant, OnCpu(path), 4)
    assert row.cosine_file == pytest.approx(1)
    assert 0 < row.p50_ms <= row.p99_ms
    assert row.rows_per_s == pytest.approx(4000 / row.p50_ms)


def test_a_file_that_is_wrong_on_the_cpu_gets_no_engine(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")

    def draw(random: np.random.Generator, rows: int) -> Batch:
        return {"x": np.abs(random.standard_normal((rows, 4))).astype(np.float32)}

    same = onnx_model(X, Y, [("Identity", ["x"], ["y"], {})])
    negative = onnx_model(X, Y, [("Neg", ["x"], ["y"], {})])
    made = []
    for name, content in (("fp32", same), ("int8", negative)):
        (tmp_path / name).write_bytes(content)
        made.append(Variant(name, tmp_path / name, (), draw))
    assert too_far(made[0], made[0]) is None
    assert too_far(made[1], made[0]) == "cosine -1.000 to FP32 on the CPU"
