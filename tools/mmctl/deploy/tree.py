"""A served tree in a local folder, and what mmctl keeps beside it: versions, ledger, lock.

For a tree `embedded` these are `embedded.kept`, `embedded.ledger.jsonl`, `embedded.deploying` and
`embedded.lock` in the same folder. A name that could lead out of the tree is not one of its models.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmctl.building.served import ledger_path, lock_path
from mmctl.deploy.ledger import keys_of
from mmctl.deploy.state import PLAN, STEP, Files, Held, HeldModel, TreeState, is_plan
from mmctl.files import (
    exclusive,
    inside,
    link_or_copy,
    new_folder,
    write_bytes,
    write_text,
    writing_to,
)
from mmctl.triton.repository import CONFIG, MANIFEST, content_digest
from mmctl.workspace import check_name

VERSION = re.compile(r"[1-9][0-9]{0,17}")
"""What Triton has room for."""
Precompile = Callable[[Sequence[Path]], None]


@dataclass(frozen=True, slots=True)
class LocalTree:
    """The folder at `root`. `precompile` gets each new version folder."""

    root: Path
    precompile: Precompile = field(default=lambda _: None, repr=False)

    @property
    def kept(self) -> Path:
        return self.root.with_name(f"{self.root.name}.kept")

    @property
    def torn(self) -> Path:
        return self.root.with_name(f"{self.root.name}.deploying")

    def read(self) -> TreeState:
        names = {f.name for place in (self.root, self.kept) for f in _models(place)}
        models = {name: self._read_model(name) for name in sorted(names)}
        return TreeState(models, keys_of(self.ledger()), self.torn.is_file())

    def place_of(self, model: str, version: int) -> Path:
        """Where a version lies: in the tree, else beside it."""
        there = self._model(model) / str(version)
        return there if there.is_dir() else self._kept(model) / str(version)

    def source_of(self, model: str, version: int) -> str:
        return str(self.place_of(model, version))

    def plan_of(self, model: str, version: int) -> bytes | None:
        plan = self.place_of(model, version) / PLAN
        return plan.read_bytes() if plan.is_file() else None

    def alone(self, on_wait: Callable[[], None]) -> AbstractContextManager[None]:
        return exclusive(lock_path(self.root), on_wait)

    def copy(self, model: str, version: int, source: str) -> None:
        final = self._model(model) / str(version)
        if final.is_dir():
            return
        origin = Path(source)
        with new_folder(final) as folder:
            for file in files_of(origin):
                link_or_copy(file, folder / file.relative_to(origin))
        self.precompile([final])

    def drop(self, model: str, version: int) -> None:
        _remove_version(self._model(model), version)

    def forget(self, model: str, version: int) -> None:
        _remove_version(self._model(model), version)
        _remove_version(self._kept(model), version)

    def write(self, model: str, files: Files) -> None:
        folder = self._model(model)
        places = {path: inside(folder, path) for path in sorted(files, key=CONFIG.__eq__)}
        for path, place in places.items():
            if not is_plan(path) or place.parent.is_dir():
                write_bytes(place, files[path])
        with writing_to(folder):
            for stray in _settings(folder):
                within = stray.relative_to(folder)
                if str(within) not in files:
                    stray.unlink()
                    with suppress(OSError):
                        for parent in list(within.parents)[:-1]:
                            (folder / parent).rmdir()  # only when nothing is left in it
            with suppress(OSError):
                folder.rmdir()

    def keep(self, model: str) -> None:
        folder = self._model(model)
        with writing_to(folder):
            (folder / CONFIG).unlink(missing_ok=True)
            for version in _versions(folder):
                _move(version, self._kept(model) / version.name)
        _remove(folder)

    def bring_back(self, model: str) -> None:
        folder, kept = self._model(model), self._kept(model)
        with writing_to(folder):
            for version in _versions(kept):
                _move(version, folder / version.name)
        _remove(kept)

    def erase(self, model: str) -> None:
        folder = self._model(model)
        with writing_to(folder):
            (folder / CONFIG).unlink(missing_ok=True)
        _remove(folder)

    def tear(self, told: str) -> None:
        """Clears away what an earlier deployment that was killed has half written, too."""
        for model in (*_models(self.root), *_models(self.kept)):
            for entry in model.iterdir():
                if entry.name.startswith("."):
                    _remove(entry)
        write_text(self.torn, told + "\n")

    def mend(self) -> None:
        with writing_to(self.torn):
            self.torn.unlink(missing_ok=True)

    def log(self, entry: Mapping[str, Any]) -> None:
        path = ledger_path(self.root)
        with writing_to(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def ledger(self) -> Sequence[Mapping[str, Any]]:
        """Without a last line that a kill has cut."""
        path = ledger_path(self.root)
        if not path.is_file():
            return []
        return entries_of(path.read_text(encoding="utf-8", errors="replace"))

    def _model(self, name: str) -> Path:
        return inside(self.root, name)

    def _kept(self, name: str) -> Path:
        return inside(self.kept, name)

    def _read_model(self, name: str) -> HeldModel:
        kept = {int(f.name): read_held(f, kept=True) for f in _versions(self._kept(name))}
        folder = self._model(name)
        there = {int(f.name): read_held(f) for f in _versions(folder)}
        return HeldModel(kept | there, read_files(folder) if folder.is_dir() else {})


def read_held(folder: Path, *, kept: bool = False) -> Held:
    """A version folder. The build key of one that mmctl did not make is the hash of its content."""
    files = list(files_of(folder))
    manifest = b""
    with suppress(OSError):
        manifest = (folder / MANIFEST).read_bytes()
    return held_of(
        manifest,
        {entry.name for entry in folder.iterdir()},
        sum(file.stat().st_size for file in files),
        lambda: content_digest(folder),
        kept=kept,
    )


def held_of(
    manifest: bytes, names: Collection[str], size: int, key: Callable[[], str], *, kept: bool
) -> Held:
    """A version folder by the text of its manifest, if any; `key` is asked where that says none."""
    said: Any = {}
    with suppress(ValueError, RecursionError):
        said = json.loads(manifest)
    if not isinstance(said, dict):  # a file of the user's own with that name
        said = {}
    calls: dict[str, int] = {}
    with suppress(ValueError, TypeError, AttributeError):
        calls = {str(name): int(pin) for name, pin in said.get("calls", {}).items()}
    return Held(
        key=str(said.get("build_key") or key()),
        bytes=size,
        config=str(said.get("config", "")),
        calls=calls,
        runner="build_key" in said and not {PLAN, STEP}.isdisjoint(names),
        kept=kept,
    )


def entries_of(text: str) -> list[Mapping[str, Any]]:
    """The lines of a ledger, without one that a kill has cut."""
    entries: list[Mapping[str, Any]] = []
    for line in text.splitlines():
        with suppress(ValueError):
            if isinstance(entry := json.loads(line), dict):
                entries.append(entry)
    return entries


def read_files(folder: Path) -> dict[str, bytes]:
    """What of a model may change while its versions stay; nothing without a config.pbtxt."""
    if not (folder / CONFIG).is_file():
        return {}
    plans = [version / PLAN for version in _versions(folder) if (version / PLAN).is_file()]
    found = (*_settings(folder), *plans)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(found)}


def files_of(folder: Path) -> Iterator[Path]:
    """All files below but Python's caches."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.parent.name != "__pycache__":
            yield path


def _models(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(f for f in root.iterdir() if f.is_dir() and is_name(f.name))


def is_name(name: str) -> bool:
    """Triton takes other names than mmctl does, but never one that leads elsewhere."""
    return check_name(name, generated=True) is None or re.fullmatch(r"\w[\w.-]*", name) is not None


def _versions(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(f for f in folder.iterdir() if f.is_dir() and VERSION.fullmatch(f.name))


def _settings(folder: Path) -> Iterator[Path]:
    """Files of a model outside of its version folders, hidden ones left out."""
    if not folder.is_dir():
        return
    for path in files_of(folder):
        first = path.relative_to(folder).parts[0]
        if not VERSION.fullmatch(first) and not first.startswith("."):
            yield path


def _move(folder: Path, final: Path) -> None:
    if final.is_dir():
        _remove(folder)
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    os.rename(folder, final)


def _remove_version(model: Path, version: int) -> None:
    _remove(model / str(version))
    with suppress(OSError):
        model.rmdir()  # only when nothing is left in it


def _remove(path: Path) -> None:
    """A folder is renamed first: nobody sees a part of it under its name."""
    with writing_to(path):
        if path.is_dir() and not path.is_symlink():
            hidden = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
            os.rename(path, hidden)
            shutil.rmtree(hidden)
        else:
            path.unlink(missing_ok=True)
