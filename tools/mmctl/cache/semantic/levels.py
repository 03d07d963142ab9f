"""The semantic levels of a process: one per deployed model, over one ring of vectors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

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
        """Raises InputError for a calibration that cannot be read."""
        embedder = self._embedder or ServedEmbedder(semantic.embedder)
        trust = None
        if self._folder is not None and isinstance(semantic.policy, VerifiedPolicy):
            trust = load(self._folder, identity, semantic.policy.verified.max_error)
        return Level(semantic, self._ring, embedder, trust=trust, clock=self._clock)


def save(folder: Path, identity: Identity, trust: Trust) -> Path:
    """Write what was learned of a model; gives the file."""
    path = folder / _name(identity)
    told = {"model": identity.model, "version": identity.version, "digest": identity.digest}
    write_json(path, {**told, "learned": trust.saved()})
    return path


def load(folder: Path, identity: Identity, max_error: float) -> Trust | None:
    """What was learned of this very content of a model; None where nothing was. Raises InputError
    for a file that cannot be read.
    """
    path = folder / _name(identity)
    if not path.is_file():
        return None
    try:
        told = json.loads(read_text(path))
        if [told["model"], told["version"], told["digest"]] != [
            identity.model,
            identity.version,
            identity.digest,
        ]:
            return None
        return Trust.restored(told["learned"], max_error)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InputError(
            f"`{path}` is no calibration: {error}",
            hint="remove it, or write it again with `mmctl cache calibrate`",
        ) from error


def _name(identity: Identity) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", identity.model) + ".json"
