"""Boxes around lines of text, from a map of how likely each pixel is text.

As DB (Liao et al. 2020) does it, whose maps shrink the text: what hangs together, the least
rectangle around it at any angle, grown by how large it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from components import Runs, connected_parts

Floats = npt.NDArray[np.floating[Any]]

LIKELY = 0.3  # from here on a pixel is text
SURE = 0.5  # the least mean over a box
LEAST_SIDE = 3
GROWTH = 1.6
UPRIGHT = 1.5  # a box this much higher than wide holds a line that runs downwards
MOST = 1000


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle at any angle. Both directions have length 1; x goes right, y down."""

    start: Floats
    along: Floats  # the direction of reading
    down: Floats  # from the top of the letters to their foot
    width: float
    height: float

    @property
    def corners(self) -> Floats:
        """[4, 2]: where the text starts, then clockwise around it."""
        right, foot = self.along * self.width, self.down * self.height
        corners: Floats = self.start + np.array([0 * right, right, right + foot, foot])
        return corners

    def grown(self, by: float) -> Box:
        """Larger by that much on each side."""
        start = self.start - by * (self.along + self.down)
        return replace(self, start=start, width=self.width + 2 * by, height=self.height + 2 * by)

    def scaled(self, x: float, y: float) -> Box:
        """In another picture, x and y times as large. The scales are nearly equal, so that what
        was a rectangle is taken for one again.
        """
        start, right, _, foot = self.corners * (x, y)
        width, height = float(np.hypot(*(right - start))), float(np.hypot(*(foot - start)))
        return Box(start, (right - start) / width, (foot - start) / height, width, height)


def find_boxes(likely: Floats) -> list[Box]:
    """Boxes in a map [height, width], in its pixels; the largest ones when there are very many."""
    parts = sorted(connected_parts(likely > LIKELY, LEAST_SIDE), key=len, reverse=True)[:MOST]
    boxes = [least_box(hull_of(part)) for part in parts]
    kept = [
        box
        for box in boxes
        if min(box.width, box.height) >= LEAST_SIDE and mean_inside(likely, box) >= SURE
    ]
    return [reading(box.grown(_growth(box))) for box in kept]


def _growth(box: Box) -> float:
    return box.width * box.height * GROWTH / (2 * (box.width + box.height))


def hull_of(part: Runs) -> Floats:
    """The corners [n, 2] of the convex hull of a part's pixels, at the centres of pixels."""
    ends = set(zip(part.first.tolist(), part.row.tolist(), strict=True))
    ends.update(zip(part.last.tolist(), part.row.tolist(), strict=True))
    points = sorted(ends)
    half = _half_hull(points)[:-1] + _half_hull(points[::-1])[:-1]
    return np.array(half, np.float64) + 0.5


def _half_hull(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Andrew's monotone chain: never turn the wrong way."""
    chain: list[tuple[int, int]] = []
    for x, y in points:
        while len(chain) > 1:
            (ax, ay), (bx, by) = chain[-2:]
            if (bx - ax) * (y - ay) > (by - ay) * (x - ax):
                break
            chain.pop()
        chain.append((x, y))
    return chain


def least_box(hull: Floats) -> Box:
    """The rectangle of least area around a hull: one of its sides lies on a side of the hull."""
    sides = np.roll(hull, -1, axis=0) - hull
    along = sides / np.maximum(np.hypot(*sides.T), 1e-9)[:, None]
    down = np.stack([-along[:, 1], along[:, 0]], axis=1)
    x, y = hull @ along.T, hull @ down.T
    widths, heights = np.ptp(x, axis=0), np.ptp(y, axis=0)
    best = int((widths * heights).argmin())
    start = x[:, best].min() * along[best] + y[:, best].min() * down[best]
    box = Box(start, along[best], down[best], float(widths[best]), float(heights[best]))
    return _level(box)


def _level(box: Box) -> Box:
    """The same rectangle, started at the corner from which `along` goes right more than down."""
    while box.along[0] < abs(box.along[1]):
        box = _turned(box)
    return box


def _turned(box: Box) -> Box:
    """The same rectangle, started at the next corner clockwise."""
    return Box(box.corners[1], box.down, -box.along, box.height, box.width)


def reading(box: Box) -> Box:
    """Started where its text does, if that is not upside down: high boxes are read downwards."""
    return _turned(box) if box.height > UPRIGHT * box.width else box


def mean_inside(likely: Floats, box: Box) -> float:
    """The mean of the map over the pixels whose centres lie in the box."""
    low = np.maximum(np.floor(box.corners.min(axis=0)).astype(int), 0)
    high = np.ceil(box.corners.max(axis=0)).astype(int) + 1
    window = likely[low[1] : high[1], low[0] : high[0]]
    y, x = np.ogrid[: window.shape[0], : window.shape[1]]
    x, y = x + (low[0] + 0.5 - box.start[0]), y + (low[1] + 0.5 - box.start[1])
    right, foot = x * box.along[0] + y * box.along[1], x * box.down[0] + y * box.down[1]
    slack = 1e-6
    inside = (np.abs(right - box.width / 2) <= box.width / 2 + slack) & (
        np.abs(foot - box.height / 2) <= box.height / 2 + slack
    )
    return float(window[inside].mean())
