"""Steps of document_qa: the lines that ocr read, and the one that answers the question."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Lists = Sequence[Sequence[Any]]

NOTHING = "", 0.0, np.zeros((4, 2), np.int32)


def split_lines(lines: npt.NDArray[np.object_]) -> dict[str, Any]:
    """`text` and `box` [4, 2] of each line in the JSON of each page."""
    pages = [json.loads(page) for page in lines]
    return {
        "text": [[line["text"] for line in page] for page in pages],
        "box": [[np.array(line["box"], np.int32) for line in page] for page in pages],
    }


def find_answer(question: Floats, embeddings: Lists, texts: Lists, boxes: Lists) -> dict[str, Any]:
    """The line of each page that is nearest to its question: `answer`, `score`, `box`.

    `question` is [batch, 384]; vectors have length 1, so that their product is their cosine. A
    page without lines answers "", 0 and a box of zeros.
    """
    rows = zip(question, embeddings, texts, boxes, strict=True)
    answers, scores, where = zip(*(_nearest(*row) for row in rows), strict=True)
    return {
        "answer": np.array(answers, object),
        "score": np.array(scores, np.float32),
        "box": np.stack(where),
    }


def _nearest(
    question: Floats, embeddings: Sequence[Floats], texts: Sequence[str], boxes: Sequence[Ints]
) -> tuple[str, float, Ints]:
    if not texts:
        return NOTHING
    scores = np.stack(embeddings) @ question
    best = int(scores.argmax())
    return texts[best], float(scores[best]), boxes[best]
