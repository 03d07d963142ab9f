"""Pictures: files decoded, pages as the detector takes them, lines cut out."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from boxes import Box
from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: TID253 - the servers have it

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # none that starts another program
MAX_MEGAPIXELS = 50

# The detector finds the letters of the test pages at this size as well as at any larger one.
SHORT_SIDE = 480
LONG_SIDE = 1600
STRIDE = 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

LINE_HEIGHT = 48
LINE_WIDTHS = (320, 2400)
LINE_STEP = 64  # widths of one step meet in one batch of the recogniser

Image.MAX_IMAGE_PIXELS = None  # MAX_MEGAPIXELS decides, on the header, before any decoding


def decoded(data: bytes) -> Pixels:
    """[height, width, 3] in RGB, turned as its camera says. Raises ValueError."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            megapixels = picture.width * picture.height / 1e6
            if megapixels <= MAX_MEGAPIXELS:
                return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    except UnidentifiedImageError:
        raise ValueError("not an image that Pillow can read") from None
    except Exception as error:  # noqa: BLE001 - a broken file can raise anything in a decoder
        raise ValueError(f"not an image that Pillow can read: {error}") from None
    raise ValueError(f"{megapixels:.0f} megapixels, allowed are {MAX_MEGAPIXELS}")


def page_of(picture: Pixels) -> Floats:
    """What the detector takes: fp32 [3, height, width] in BGR, multiples of 32, normalised."""
    height, width = page_size(*picture.shape[:2])
    resized = Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR)
    scale, shift = 1 / (255 * np.array(STD)), np.array(MEAN) / STD
    normalised = np.asarray(resized)[:, :, ::-1] * np.float32(scale) - np.float32(shift)
    return np.ascontiguousarray(normalised.transpose(2, 0, 1))


def page_size(height: int, width: int) -> tuple[int, int]:
    """Small pages larger, so that the letters are found; very large ones smaller."""
    scale = max(1, SHORT_SIDE / min(height, width))
    scale = min(scale, LONG_SIDE / max(height, width))
    return _stepped(height * scale), _stepped(width * scale)


def _stepped(length: float) -> int:
    return max(STRIDE, round(length / STRIDE) * STRIDE)


def cut_out(picture: Pixels, boxes: list[Box]) -> list[Pixels]:
    """Each box as a line of text [48, width, 3], level; a box may reach over the edge."""
    if not boxes:
        return []
    corners = np.concatenate([box.corners for box in boxes])
    size = picture.shape[1::-1]
    over = int(np.ceil(max(0, -corners.min(), (corners - size).max()))) + 2
    around = Image.fromarray(np.pad(picture, ((over, over), (over, over), (0, 0)), mode="edge"))
    return [_line_of(around, box, over) for box in boxes]


def _line_of(picture: Image.Image, box: Box, over: int) -> Pixels:
    width = round(LINE_HEIGHT * box.width / box.height)
    size = min(max(width, 1), LINE_WIDTHS[1]), LINE_HEIGHT
    # Letters that get smaller are cut out as they are first: sampling alone would lose strokes.
    drawn = max(size[0], round(box.width)), max(size[1], round(box.height))
    right, foot = box.along * box.width / drawn[0], box.down * box.height / drawn[1]
    start = box.start + over
    data = (right[0], foot[0], start[0], right[1], foot[1], start[1])
    line = picture.transform(drawn, Image.Transform.AFFINE, data, Image.Resampling.BICUBIC)
    return np.asarray(line if drawn == size else line.resize(size, Image.Resampling.BILINEAR))


def padded(line: Pixels) -> Pixels:
    """[48, width, 3] with pixels at its right, up to one of few widths."""
    width = line.shape[1]
    steps = -(-max(width, LINE_WIDTHS[0]) // LINE_STEP)
    return np.pad(line, ((0, 0), (0, steps * LINE_STEP - width), (0, 0)), mode="edge")
