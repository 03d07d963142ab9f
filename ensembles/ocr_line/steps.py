"""Steps of ocr_line: a line as the models take it, turned upright, and its letters read."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image  # noqa: TID253 - the servers have it

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

CHARACTERS = Path(__file__).parent / "assets" / "characters.txt"
ORIENT_WIDTH = 192
TURNED = 0.9  # from this probability on: turning a line that stood right costs more


def look(crop: Pixels, width: Ints) -> dict[str, Floats]:
    """What tells the direction: [batch, 3, 48, 192], longer lines squeezed into it."""
    lines = map(_squeezed, _lines(crop, width))
    return {"pixels": np.stack([_normalised(line, ORIENT_WIDTH) for line in lines])}


def _lines(crop: Pixels, width: Ints) -> list[Pixels]:
    """Without what fills them up."""
    return [line[:, :true] for line, true in zip(crop, width.tolist(), strict=True)]


def _squeezed(line: Pixels) -> Pixels:
    height, width = line.shape[:2]
    if width <= ORIENT_WIDTH:
        return line
    size = ORIENT_WIDTH, height
    return np.asarray(Image.fromarray(line).resize(size, Image.Resampling.BILINEAR))


def turn(crop: Pixels, width: Ints, probs: Floats) -> dict[str, npt.NDArray[Any]]:
    """What the recogniser takes: [batch, 3, 48, width], upright; and which ones were `turned`."""
    turned = probs[:, 1] >= TURNED
    lines = [
        line[::-1, ::-1] if upside_down else line
        for line, upside_down in zip(_lines(crop, width), turned.tolist(), strict=True)
    ]
    pixels = np.stack([_normalised(line, crop.shape[2]) for line in lines])
    return {"pixels": pixels, "turned": turned}


def _normalised(line: Pixels, width: int) -> Floats:
    """[48, w, 3] in RGB -> [3, 48, width] in BGR from -1 to 1, 0 at the right of the line."""
    pixels = np.zeros((3, line.shape[0], width), np.float32)
    pixels[:, :, : line.shape[1]] = line.transpose(2, 0, 1)[::-1] / np.float32(127.5) - 1
    return pixels


def read(probs: Floats) -> dict[str, npt.NDArray[Any]]:
    """The `text` of each line and its `score`, the mean probability of its letters.

    `probs` is [batch, steps, characters]. A letter stands where the likeliest character changes;
    the first one of the list stands for no letter.
    """
    best = probs.argmax(-1)
    sure = np.take_along_axis(probs, best[..., None], -1)[..., 0]
    found = [_letters(*row) for row in zip(best, sure, strict=True)]
    return {
        "text": np.array([text for text, _ in found], object),
        "score": np.array([score for _, score in found], np.float32),
    }


def _letters(best: npt.NDArray[np.int64], sure: Floats) -> tuple[str, float]:
    """The likeliest character of each step, and how likely it is -> text and score."""
    starts = (best != 0) & (np.diff(best, prepend=0) != 0)
    text = "".join(characters()[number] for number in best[starts].tolist())
    return text, float(sure[starts].mean()) if text else 0.0


@functools.cache
def characters() -> tuple[str, ...]:
    """By the number that the recogniser gives them; 0 is no letter, the last is the space."""
    return ("", *CHARACTERS.read_text("utf-8").split("\n"), " ")
