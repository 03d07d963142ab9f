"""Crops of freely licensed photos, to calibrate image models with and to prove them on.

Each photo is for one purpose. Crops of TUNING are to choose options with; crops of HELD_OUT are to
be looked at once, when all options are chosen, or what they prove is worth nothing.

The photos of these two are clear: each shows a thing that is a class of ImageNet, and
EfficientNet-Lite0 in FP32 is on average at least 0.3 sure of its crops. Those of CALIBRATION are
not: on them the two best classes lie so close that any rounding changes the best.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.float32]
Batches = Iterator[dict[str, Pixels]]

FOLDER = Path(__file__).parent / "photos"
CALIBRATION = ("astronaut", "clock", "eye", "flower", "grass", "gravel", "stars")
TUNING = ("cat", "temple")
HELD_OUT = ("bricks", "coffee", "rocket", "tripod")

SIDE = 224
ROWS = 8
OPEN_NSFW_MEANS = (104, 117, 123)
"""Of blue, green and red."""


def calibration() -> Batches:
    """140 crops for EfficientNet-Lite0, 8 to a batch."""
    return batches(calibration_crops(), for_efficientnet)


def tuning() -> Batches:
    """212 crops for EfficientNet-Lite0, 8 to a batch."""
    return batches(tuning_crops(), for_efficientnet)


def held_out() -> Batches:
    """212 crops for EfficientNet-Lite0, 8 to a batch."""
    return batches(held_out_crops(), for_efficientnet)


def nsfw_calibration() -> Batches:
    """140 crops for Open-NSFW, 8 to a batch."""
    return batches(calibration_crops(), for_open_nsfw)


def nsfw_held_out() -> Batches:
    """212 crops for Open-NSFW, 8 to a batch."""
    return batches(held_out_crops(), for_open_nsfw)


def calibration_crops(folder: Path = FOLDER) -> Iterator[Image.Image]:
    return crops(folder, CALIBRATION, each=20, smallest=0.4, seed=1)


def tuning_crops(folder: Path = FOLDER) -> Iterator[Image.Image]:
    return crops(folder, TUNING, each=106, smallest=0.7, seed=2)


def held_out_crops(folder: Path = FOLDER) -> Iterator[Image.Image]:
    return crops(folder, HELD_OUT, each=53, smallest=0.7, seed=4)


def crops(
    folder: Path, names: Sequence[str], *, each: int, smallest: float, seed: int
) -> Iterator[Image.Image]:
    """Squares out of photos, half of them mirrored. `smallest` is a share of the largest square
    that fits.
    """
    random = np.random.default_rng(seed)
    for name in names:
        with Image.open(folder / f"{name}.jpg") as photo:
            for _ in range(each):
                side = int(random.uniform(smallest, 1) * min(photo.size))
                x = int(random.integers(0, photo.width - side, endpoint=True))
                y = int(random.integers(0, photo.height - side, endpoint=True))
                crop = photo.crop((x, y, x + side, y + side))
                mirrored = random.random() < 0.5
                yield crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else crop


def for_efficientnet(crop: Image.Image) -> Pixels:
    """[3, 224, 224] from about -1 to 1."""
    square = crop.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return ((np.asarray(square, np.float32) - 127) / 128).transpose(2, 0, 1)


def for_open_nsfw(crop: Image.Image) -> Pixels:
    """[224, 224, 3] in blue, green and red, less their means; through JPEG, as in training."""
    square = crop.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    file = io.BytesIO()
    square.save(file, format="JPEG")
    with Image.open(file) as picture:
        bgr = np.asarray(picture.convert("RGB"), np.float32)[:, :, ::-1]
    return bgr - np.array(OPEN_NSFW_MEANS, np.float32)


def batches(found: Iterator[Image.Image], prepared: Callable[[Image.Image], Pixels]) -> Batches:
    rows: list[Pixels] = []
    for crop in found:
        rows.append(prepared(crop))
        if len(rows) == ROWS:
            yield {"pixels": np.stack(rows)}
            rows = []
    if rows:
        yield {"pixels": np.stack(rows)}
