"""Words that people write for those that Triton has. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mmctl.diagnostics import nearest

MEANT = {
    "TYPE_BYTES": "TYPE_STRING",
    "BYTES": "TYPE_STRING",
    "TYPE_FLOAT": "TYPE_FP32",
    "TYPE_FLOAT16": "TYPE_FP16",
    "TYPE_HALF": "TYPE_FP16",
    "TYPE_FLOAT32": "TYPE_FP32",
    "TYPE_FLOAT64": "TYPE_FP64",
    "TYPE_DOUBLE": "TYPE_FP64",
    "TYPE_BFLOAT16": "TYPE_BF16",
    "TYPE_INT": "TYPE_INT32",
    "TYPE_LONG": "TYPE_INT64",
    "TYPE_BOOLEAN": "TYPE_BOOL",
    "KIND_CUDA": "KIND_GPU",
}
"""What people write for a word and which word they mean."""


def meant_word(word: str, words: Mapping[str, int]) -> str | None:
    """The word that was meant without a doubt, None where it could be another."""
    for guess in (MEANT.get(word.upper()), MEANT.get(f"TYPE_{word.upper()}")):
        if guess in words:
            return guess
    for guess in (word.upper(), f"TYPE_{word.upper()}", f"KIND_{word.upper()}"):
        if guess in words:
            return guess
    return None


def nearest_word(word: str, words: Mapping[str, int]) -> str | None:
    """A hint that offers the word that was meant, or the nearest one."""
    if (meant := meant_word(word, words)) is not None:
        return f"write `{meant}`"
    return nearest(word, [name for name in words if name != "TYPE_INVALID"])
