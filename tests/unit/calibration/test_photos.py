"""The crops that image models are calibrated with and proven on."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mmctl.exporters.accuracy.data import Sample, refuse_shared
from mmctl.exporters.accuracy.read import load_samples
from mmctl.exporters.functions import load_function

PAIRS = [
    ("calibration", "tuning"),
    ("calibration", "held_out"),
    ("tuning", "held_out"),
    ("nsfw_calibration", "nsfw_held_out"),
]


@pytest.fixture
def samples(root: Path) -> Callable[[str], list[Sample]]:
    return lambda name: load_samples(root, f"photos:{name}")


@pytest.fixture
def photos(root: Path) -> ModuleType:
    load_function(root / "calibration" / "photos.py", "crops")
    return sys.modules["photos"]


@pytest.mark.parametrize(
    ("name", "rows", "shape"),
    [
        pytest.param("calibration", 140, (3, 224, 224), id="efficientnet, calibration"),
        pytest.param("tuning", 212, (3, 224, 224), id="efficientnet, tuning"),
        pytest.param("held_out", 212, (3, 224, 224), id="efficientnet, held out"),
        pytest.param("nsfw_calibration", 140, (224, 224, 3), id="nsfw, calibration"),
        pytest.param("nsfw_held_out", 212, (224, 224, 3), id="nsfw, held out"),
    ],
)
def test_batches_fit_the_model(
    samples: Callable[[str], list[Sample]], name: str, rows: int, shape: tuple[int, ...]
) -> None:
    found = samples(name)
    assert sum(sample.rows for sample in found) == rows
    assert {sample.inputs["pixels"].shape[1:] for sample in found} == {shape}
    assert {sample.inputs["pixels"].dtype for sample in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_crop_is_in_both(samples: Callable[[str], list[Sample]], one: str, other: str) -> None:
    refuse_shared(samples(one), samples(other))


def test_each_photo_is_for_one_purpose(photos: ModuleType, root: Path) -> None:
    names = [*photos.CALIBRATION, *photos.TUNING, *photos.HELD_OUT]
    assert sorted(names) == sorted(path.stem for path in photos.FOLDER.glob("*.jpg"))
    credited = (root / "CREDITS.md").read_text("utf-8")
    assert [name for name in names if f"`{name}.jpg`" not in credited] == []


def test_equal_calls_give_equal_crops(samples: Callable[[str], list[Sample]]) -> None:
    first, again = samples("held_out"), samples("held_out")
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.inputs["pixels"], other.inputs["pixels"])


def test_efficientnet_crops_are_normalised_as_the_pipeline_does(
    samples: Callable[[str], list[Sample]],
) -> None:
    pixels = np.concatenate([sample.inputs["pixels"] for sample in samples("held_out")])
    assert pixels.min() == pytest.approx(-127 / 128)
    assert pixels.max() == pytest.approx(1)
