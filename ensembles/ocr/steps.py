"""Steps of ocr: a page for the detector, its lines cut out, and the text put together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from boxes import find_boxes
from lines import Line, in_order
from pictures import cut_out, decoded, padded, page_of

Files = npt.NDArray[np.object_]
Array = npt.NDArray[Any]
Lists = Sequence[Sequence[Array]]


def prepare(image: Files) -> dict[str, Any]:
    """Per row the one `page` that the detector takes: fp32 [3, height, width]."""
    return {"page": [[page_of(picture)] for picture in _pictures(image)]}


def cut(image: Files, likely: Lists) -> dict[str, Any]:
    """Per row and line: `crop` [48, padded width, 3], its true `width`, `box` [4, 2].

    `likely` has one map [1, height, width] a row. The corners in `box` are pixels of the picture,
    clockwise, from where the text starts when it is not upside down. The picture is decoded again
    here: to send it along would cost as much, and memory of its size.
    """
    rows = [_cut_row(*pair) for pair in zip(_pictures(image), likely, strict=True)]
    return {name: [row[name] for row in rows] for name in ("crop", "width", "box")}


def _cut_row(picture: Array, maps: Sequence[Array]) -> dict[str, list[Any]]:
    [[likely]] = maps
    x, y = picture.shape[1] / likely.shape[1], picture.shape[0] / likely.shape[0]
    boxes = [box.scaled(x, y) for box in find_boxes(likely)]
    crops = cut_out(picture, boxes)
    return {
        "crop": [padded(crop) for crop in crops],
        "width": [np.int32(crop.shape[1]) for crop in crops],
        "box": [box.corners.round().astype(np.int32) for box in boxes],
    }


def _pictures(image: Files) -> Iterator[npt.NDArray[np.uint8]]:
    for row, data in enumerate(image):
        try:
            yield decoded(data)
        except ValueError as error:
            raise ValueError(f"`image`: {error} (row {row} of the request)") from error


def put_together(
    box: Lists, text: Sequence[Sequence[str]], score: Lists, turned: Lists
) -> dict[str, Any]:
    """`text` of each page, lines joined by newlines; `lines` as JSON: [{text, score, box}, ...]."""
    rows = zip(box, text, score, turned, strict=True)
    pages = [in_order([Line.read(*parts) for parts in zip(*row, strict=True)]) for row in rows]
    return {
        "text": np.array(["\n".join(line.text for line in page) for page in pages], object),
        "lines": np.array(
            [json.dumps([line.told for line in page], ensure_ascii=False) for page in pages], object
        ),
    }
