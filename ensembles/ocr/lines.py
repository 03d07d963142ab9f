"""Lines of text in the order in which a page is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Line:
    """`box` [4, 2]: the corners in pixels, clockwise from where the text starts."""

    text: str
    score: float
    box: Ints

    @classmethod
    def read(cls, box: Ints, text: str, score: Any, turned: Any) -> Line:
        """From what the nodes gave for one line; the box of a turned one starts at its end."""
        return cls(text.strip(), score.item(), np.roll(box, 2, axis=0) if turned else box)

    @property
    def side(self) -> Floats:
        """Along the line, as long as it is."""
        side: Floats = self.box[1].astype(float) - self.box[0]
        return side

    @property
    def height(self) -> float:
        return float(np.hypot(*(self.box[3] - self.box[0])))

    @property
    def middle(self) -> Floats:
        middle: Floats = self.box.mean(axis=0)
        return middle

    @property
    def told(self) -> dict[str, Any]:
        return {"text": self.text, "score": round(self.score, 4), "box": self.box.tolist()}


def in_order(lines: list[Line]) -> list[Line]:
    """From top to bottom, left to right in a row, as one reads who holds the page right.

    Lines without text are left out.
    """
    lines = [line for line in lines if line.text]
    along = sum((line.side for line in lines), start=np.zeros(2))
    down = np.array([-along[1], along[0]]) / max(np.hypot(*along), 1e-9)
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: float(line.middle @ down)):
        if rows and _in_one_row(rows[-1][-1], line, down):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [
        line for row in rows for line in sorted(row, key=lambda line: float(line.middle @ along))
    ]


def _in_one_row(one: Line, other: Line, down: Floats) -> bool:
    """Whether their middles are less than half a letter apart."""
    apart = (other.middle - one.middle) @ down
    return bool(abs(apart) < min(one.height, other.height) / 2)
