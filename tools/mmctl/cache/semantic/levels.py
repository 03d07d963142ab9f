"""The semantic levels of a process: one per deployed model, over one ring of vectors."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmctl.cache.keys import Identity
from mmctl.cache.semantic.embedders import Embedder, ServedEmbedder
from mmctl.cache.semantic.level import Kept, Level
from mmctl.cache.semantic.ring import ENTRIES, Ring
from mmctl.cache.semantic.trust import Trust
from mmctl.cache.settings import Semantic, VerifiedPolicy
from mmctl.errors import InputError
from mmctl.files import read_text, write_json

FOLDER = "calibrations"
"""In a workspace's state: what levels have learned, one file per model."""


class Levels:
    """Makes the level of a model (a meaning.MakeMeaning). Without an `embedder` texts are embedded
    by the model on the same server that `semantic.embedder` names. With a `folder`, a level begins
    with the calibration that lies there for its model.
    """

    def __init__(
        self,
        entries: int = ENTRIES,
        *,
        embedder: Embedder | None = None,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ring: Ring[Kept] = Ring(entries, clock)
        self._embedder = embedder
        self._folder = folder
        self._clock = clock

    def __call__(self, identity: Identity, semantic: Semantic) -> Level:
        """A calibration that cannot be read is none, and a warning says so."""
        embedder = self._embedder or ServedEmbedder(semantic.embedder)
        trust = None
        if self._folder is not None:
            try:
                trust = load(self._folder, identity, semantic)
            except InputError as error:
                warnings.warn(f"{error.message}; {error.hint}", RuntimeWarning, stacklevel=2)
        return Level(semantic, self._ring, embedder, trust=trust, clock=self._clock)


def save(folder: Path, identity: Identity, semantic: Semantic, trust: Trust) -> Path:
    """Write what was learned of a model; gives the file."""
    path = folder / _name(identity)
    write_json(path, {"of": _of(identity, semantic), "learned": trust.saved()})
    return path


def load(folder: Path, identity: Identity, semantic: Semantic) -> Trust | None:
    """What was learned of this very content of a model, and of the same comparison of its answers;
    None where nothing was. Raises InputError for a file that cannot be read.
    """
    path = folder / _name(identity)
    if not path.is_file() or not isinstance(semantic.policy, VerifiedPolicy):
        return None
    try:
        told = json.loads(read_text(path))
        if told["of"] != _of(identity, semantic):
            return None
        return Trust.restored(told["learned"], semantic.policy.verified.max_error)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise InputError(
            f"`{path}` is no calibration",
            hint="remove it, or write it again with `mmctl cache calibrate`",
        ) from error


def _of(identity: Identity, semantic: Semantic) -> dict[str, Any]:
    """What answers, and when two answers are the same: with anything else a proof says nothing."""
    compared = semantic.model_dump(include={"input", "output", "within", "guard"})
    known = {"model": identity.model, "version": identity.version, "digest": identity.digest}
    return {**known, **compared}


def _name(identity: Identity) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", identity.model) + ".json"
