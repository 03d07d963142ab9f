"""The crops that image models are calibrated with and proven on."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - a test of pixels

from mmctl.exporters.accuracy.data import Sample, refuse_shared
from mmctl.exporters.accuracy.read import load_samples
from mmctl.exporters.functions import load_function

PAIRS = [("calibration", "held_out"), ("nsfw_calibration", "nsfw_held_out")]


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
        pytest.param("calibration", 104, (3, 224, 224), id="efficientnet, calibration"),
        pytest.param("held_out", 210, (3, 224, 224), id="efficientnet, held out"),
        pytest.param("nsfw_calibration", 104, (224, 224, 3), id="nsfw, calibration"),
        pytest.param("nsfw_held_out", 210, (224, 224, 3), id="nsfw, held out"),
    ],
)
def test_batches_fit_the_model(
    samples: Callable[[str], list[Sample]], name: str, rows: int, shape: tuple[int, ...]
) -> None:
    found = samples(name)
    assert sum(sample.rows for sample in found) == rows
    assert {sample.inputs["pixels"].shape[1:] for sample in found} == {shape}
    assert {sample.inputs["pixels"].dtype for sample in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("calibration", "held_out"), PAIRS)
def test_no_crop_is_in_both(
    samples: Callable[[str], list[Sample]], calibration: str, held_out: str
) -> None:
    refuse_shared(samples(calibration), samples(held_out))


def test_no_pixel_is_in_both(photos: ModuleType, tmp_path: Path) -> None:
    """Photos whose value is their column show from which columns the crops were taken."""
    columns = np.repeat(np.arange(200, dtype=np.uint8)[None], 120, axis=0)
    names = (*photos.CLEAR, *photos.UNCLEAR)
    for name in names:
        Image.fromarray(columns).save(tmp_path / f"{name}.jpg", format="PNG")
    crops = list(photos.calibration_crops(tmp_path))
    left = crops[8 * len(photos.UNCLEAR) :]
    right = [np.asarray(crop) for crop in photos.held_out_crops(tmp_path)]
    assert max(np.asarray(crop).max() for crop in left) < 200 * photos.LEFT
    assert min(crop.min() for crop in right) >= 200 * photos.LEFT


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
