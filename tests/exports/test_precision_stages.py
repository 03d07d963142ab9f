"""Stages on real networks: how small they get, and which ones wreck a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from precision_models import (
    answers,
    digits,
    digits_cnn,
    overflow_input,
    overflowing,
    written,
)

from mmctl.exporters.precision import STAGES, stages_for
from mmctl.exporters.precision.base import Conversion, Quantize
from mmctl.tensors import Array

pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("torch")

Convert = Callable[..., Path]


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    """Convert a file with a stage, calibrated on `data`; returns the new file."""

    def run(stage: str, source: Path, data: Any = (), **options: Any) -> Path:
        work, target = tmp_path / f"work_{stage}", tmp_path / f"{stage}.onnx"
        work.mkdir()
        STAGES[stage].convert(Conversion(source, target, work, data, Quantize(**options)))
        return target

    return run


def share(path: Path, source: Path) -> float:
    return path.stat().st_size / source.stat().st_size


def cosine(left: Array, right: Array) -> float:
    """Mean over rows of unit vectors."""
    return float((left * right).sum(axis=-1).mean())


# ---------------------------------------------------------------- a convolutional network


@pytest.fixture
def cnn(tmp_path: Path) -> Path:
    return written(digits_cnn(), tmp_path / "cnn.onnx")


def calibration() -> list[dict[str, Array]]:
    return [{"image": digits().train[start : start + 16]} for start in range(0, 64, 16)]


def accuracy(path: Path) -> float:
    found = answers(path, {"image": digits().test}).argmax(axis=1)
    return float((found == digits().test_labels).mean())


def test_the_digits_network_is_worth_converting(cnn: Path) -> None:
    assert accuracy(cnn) > 0.98


@pytest.mark.parametrize(
    ("stage", "size"), [("int8-static", 0.3), ("int8-tensorrt", 0.3), ("fp16", 0.51)]
)
def test_digits_keep_their_accuracy(stage: str, size: float, cnn: Path, convert: Convert) -> None:
    made = convert(stage, cnn, calibration())
    assert share(made, cnn) <= size
    assert accuracy(made) >= accuracy(cnn) - 0.01


@pytest.mark.parametrize("calibrate", ["minmax", "entropy", "percentile"])
def test_these_calibrations_keep_the_accuracy(calibrate: str, cnn: Path, convert: Convert) -> None:
    made = convert("int8-static", cnn, calibration(), calibrate=calibrate)
    assert accuracy(made) >= accuracy(cnn) - 0.01


def test_distribution_calibration_wrecks_the_digits_silently(cnn: Path, convert: Convert) -> None:
    assert accuracy(convert("int8-static", cnn, calibration(), calibrate="distribution")) < 0.3


def test_dynamic_quantization_leaves_convolutions_as_large_as_they_are(
    cnn: Path, convert: Convert
) -> None:
    assert share(convert("int8-dynamic", cnn), cnn) > 0.95


# ---------------------------------------------------------------- ranges


@pytest.mark.parametrize("batches", [0, 2], ids=["random inputs", "calibrated"])
def test_autocast_keeps_in_fp32_what_would_overflow(
    batches: int, tmp_path: Path, convert: Convert
) -> None:
    source = written(overflowing(), tmp_path / "fp32.onnx")
    data = [overflow_input(8, seed=seed) for seed in range(1, batches + 1)]
    made = convert("fp16", source, data)
    exact, close = answers(source, overflow_input(64)), answers(made, overflow_input(64))
    assert np.abs(exact - close).max() < 1e-2 * np.abs(exact).max()
    assert share(made, source) < 0.8


@pytest.mark.parametrize(
    ("batches", "rows", "used"),
    [
        pytest.param(40, 4, 4, id="small batches"),
        pytest.param(3, 4, 3, id="no more than there are"),
        pytest.param(5, 200, 1, id="large batches"),
    ],
)
def test_autocast_runs_few_rows_because_it_keeps_all_that_they_give(
    batches: int, rows: int, used: int, tmp_path: Path
) -> None:
    source, work = written(overflowing(), tmp_path / "fp32.onnx"), tmp_path / "work"
    work.mkdir()
    data = [overflow_input(rows, seed=seed) for seed in range(batches)]
    done = STAGES["fp16"].convert(Conversion(source, tmp_path / "fp16.onnx", work, data))
    assert (done["batches"], len(list((work / "calibration").iterdir()))) == (used, used)


# ---------------------------------------------------------------- a transformer


def test_auto_makes_minilm_dynamic(minilm: Path, sentences: list[dict[str, Array]]) -> None:
    one = {name: array[:1] for name, array in sentences[0].items()}
    planned = stages_for("int8", minilm, Quantize(), one)
    assert planned == (("model.onnx", STAGES["int8-dynamic"]),)


@pytest.mark.parametrize(
    ("stage", "size", "least", "most"),
    [
        ("int8-dynamic", 0.3, 0.98, 0.9999),
        ("int8-static", 0.3, -1, 0.6),
        ("fp16", 0.51, 0.9999, 1.0001),
    ],
)
def test_minilm_stands_some_conversions_and_not_others(
    stage: str,
    size: float,
    least: float,
    most: float,
    minilm: Path,
    sentences: list[dict[str, Array]],
    convert: Convert,
) -> None:
    made = convert(stage, minilm, sentences[:3])
    assert share(made, minilm) <= size
    likeness = [cosine(answers(minilm, batch), answers(made, batch)) for batch in sentences[3:]]
    assert least < np.mean(likeness) < most
