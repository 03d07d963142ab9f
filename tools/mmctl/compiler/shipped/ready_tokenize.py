"""The ready-made step `tokenize`: text -> token ids, padded to a length from a few buckets.

Triton joins only requests of equal shapes: with buckets, texts of nearly the same length meet in
one batch of the model. So a request is padded by itself, to the bucket of its longest row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

SMALLEST = 16


def make(options: Mapping[str, Any], folder: Path) -> Callable[..., dict[str, Any]]:
    """`f(text [batch])` -> input_ids, attention_mask, and what the options ask for: [batch, n]."""
    tokenizer: Any = Tokenizer.from_file(str(folder / options["tokenizer"]))
    longest: int = options["max_length"]
    pad_id = padding_id(tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)

    def tokenize(text: Any) -> dict[str, Any]:
        rows = tokenizer.encode_batch(text.tolist())
        length = bucket(max((len(row.ids) for row in rows), default=1), longest)
        outputs = {
            "input_ids": padded([row.ids for row in rows], length, pad_id),
            "attention_mask": padded([row.attention_mask for row in rows], length, 0),
        }
        if options["types"]:
            outputs["token_type_ids"] = padded([row.type_ids for row in rows], length, 0)
        if options["offsets"]:
            outputs["offsets"] = padded_offsets([row.offsets for row in rows], length)
        return outputs

    return tokenize


def padding_id(tokenizer: Any) -> int:
    """What the file says it pads with, else its padding token, else 0."""
    if tokenizer.padding:
        return int(tokenizer.padding["pad_id"])
    found = (tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
    return next((token for token in found if token is not None), 0)


def bucket(length: int, longest: int) -> int:
    """16, 32, 64, ...: the first that holds `length`, at most `longest`."""
    size = SMALLEST
    while size < length:
        size *= 2
    return min(size, longest)


def padded(rows: list[list[int]], length: int, filler: int) -> Any:
    array = np.full((len(rows), length), filler, dtype=np.int64)
    for target, row in zip(array, rows, strict=True):
        target[: len(row)] = row
    return array


def padded_offsets(rows: list[list[tuple[int, int]]], length: int) -> Any:
    """[batch, n, 2]: first character of each token and the one after its last; 0, 0 for none."""
    array = np.zeros((len(rows), length, 2), dtype=np.int32)
    for target, row in zip(array, rows, strict=True):
        target[: len(row)] = np.array(row).reshape(-1, 2)
    return array
