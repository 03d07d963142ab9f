"""A level that learns before it serves: from texts as they are asked, and the model's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.semantic.level import Level
from mmctl.cache.semantic.ring import Ring
from mmctl.cache.semantic.trust import Trust
from mmctl.cache.settings import Semantic
from mmctl.errors import InputError
from mmctl.files import read_text

ENOUGH = 1000
"""With fewer texts there is seldom a proof."""


def calibrated(
    semantic: Semantic,
    texts: Iterable[str],
    embed: Callable[[str], Vector],
    answer: Callable[[str], Entry],
    embedder: str,
) -> Trust:
    """What is learned when all texts are asked one after another and the model answers each: with
    a calibration, where one was proved. `semantic` has the policy `verified`; `embedder` is the
    digest of what embeds.
    """
    level = Level(semantic, Ring(), chance=lambda: 0.0)  # whatever it would give is a probe
    trust = level.trust
    assert trust is not None
    trust.embedder = embedder
    for text in texts:
        vector, entry = embed(text), answer(text)
        if trust.calibration is None:
            level.learn(level.look(b"", text, vector), entry)
        level.store(b"", text, vector, entry)
    return trust


def read_texts(path: Path) -> list[str]:
    """The texts of a file with {"text": ...} a line, each once. Raises InputError with the line."""
    texts: dict[str, None] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise InputError(
                f"{path}:{number}: this is not a text", hint='a line is {"text": "..."}'
            )
        texts[text] = None
    if not texts:
        raise InputError(f"`{path}` has no texts", hint='a line is {"text": "..."}')
    return list(texts)
