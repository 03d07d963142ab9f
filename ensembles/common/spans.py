"""Tags of tokens to spans of text: dates, sums, companies, ... as `entity_tagger` marks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

TYPES = ("CATEGORY", "COMPANY", "COUNT", "DATE", "MONEY", "PERSON", "TIME")
# B- begins a span, I- continues the one before; the order of the tagger's logits
TAGS = ("O", *(f"{prefix}-{kind}" for kind in TYPES for prefix in "BI"))

Span = dict[str, str | int]


def find_spans(
    text: str, logits: npt.NDArray[np.float32], offsets: npt.NDArray[np.int32]
) -> list[Span]:
    """Spans of one text, in its order, none overlapping.

    `logits` is [seq, n_tags]; `offsets` is [seq, 2] in characters, empty on special tokens and
    padding. A word has the tag of its first piece, so a span never cuts a word.
    """
    tags = logits.argmax(axis=-1)
    spans: list[tuple[str, int, int]] = []
    inside = ""
    for token, start, end in _words(text, offsets.tolist()):
        prefix, _, kind = TAGS[tags[token]].partition("-")
        if prefix == "I" and kind == inside:
            spans[-1] = (kind, spans[-1][1], end)
        elif kind:
            spans.append((kind, start, end))
        inside = kind
    return [
        {"type": kind, "text": text[start:end], "start": start, "end": end}
        for kind, start, end in spans
    ]


def _words(text: str, offsets: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    """(first token, start, end) of every word."""
    word: tuple[int, int, int] | None = None
    for token, (start, end) in enumerate(offsets):
        if start == end:
            continue
        if word is not None and start == word[2] and text[start - 1 : start + 1].isalnum():
            word = (word[0], word[1], end)
            continue
        if word is not None:
            yield word
        word = (token, start, end)
    if word is not None:
        yield word
