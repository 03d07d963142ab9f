"""Models that adopted pipelines call: copied into the workspace, or there already."""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmctl.building.adopt.chosen import Models, called, was_adopted
from mmctl.errors import InputError
from mmctl.lint.repository import Model
from mmctl.triton.repository import is_foreign, is_generated
from mmctl.workspace import Workspace

MODELS_CALLED = re.compile(rb"\bInferenceRequest\s*\(")


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """A model that the pipelines call, to be copied: what is in it, by path inside the folder.

    `folders` are those without a file: a version folder of an ensemble is one.
    """

    name: str
    source: Path
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    size_bytes: int


def find_copies(
    workspace: Workspace, models: Models, adopted: Sequence[str]
) -> Iterator[FolderCopy]:
    """Models that the pipelines call, and what ensembles among those call."""
    waiting = called(adopted, models)
    seen = set(adopted)
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in models or was_adopted(workspace, models[name]):
            continue
        seen.add(name)
        model = models[name]
        if (model.path / "model.yaml").is_file() or is_generated(model.path):
            raise InputError(
                f"{model.shown}: belongs to a workspace of mmctl, which makes it from sources",
                hint="adopt inside that workspace: `mmctl -C DIR adopt DIR/model_repository`",
            )
        waiting += called([name], models)
        folder = _folder(model)
        if not _is_there(workspace, folder, model.shown):
            yield folder


def _folder(model: Model) -> FolderCopy:
    """Links are followed. Raises InputError for one that leads nowhere, or back round."""

    def fail(error: OSError) -> None:
        raise InputError(f"{model.shown}: cannot be read: {error}") from error

    files: list[Path] = []
    empty: list[Path] = []
    size = 0
    for root, folders, names in os.walk(model.path, followlinks=True, onerror=fail):
        place = Path(root)
        _refuse_loop(place, model.path)
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in (place / name for name in sorted(names)):
            if not path.is_file():
                raise InputError(f"{path}: neither a file nor a link to one")
            files.append(path.relative_to(model.path))
            size += path.stat().st_size
        if not folders and not names:
            empty.append(place.relative_to(model.path))
    return FolderCopy(model.name, model.path, tuple(files), tuple(empty), size)


def _refuse_loop(place: Path, root: Path) -> None:
    around = {parent.resolve() for parent in place.parents if parent.is_relative_to(root)}
    if place.resolve() in around:
        raise InputError(f"{place}: a link that leads back to a folder around it")


def _is_there(workspace: Workspace, folder: FolderCopy, shown: str) -> bool:
    """Whether the workspace has the model, file by file. Raises InputError for another one."""
    there = workspace.models / folder.name
    if (workspace.pipelines / folder.name / "pipeline.yaml").is_file():
        raise InputError(
            f"`{folder.name}` is a pipeline of this workspace, and another thing in {shown}",
            hint="rename one of the two, in the configs that call it too",
        )
    if not there.exists():
        return False
    if is_foreign(there) and all(_same(folder.source / f, there / f) for f in folder.files):
        return True
    raise InputError(
        f"{workspace.shown(there)}: differs from {shown}, which the ensembles call",
        hint="rename one of the two, in the configs that call it too",
    )


def _same(one: Path, other: Path) -> bool:
    try:
        return other.is_file() and filecmp.cmp(one, other, shallow=False)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from error


def code_notes(copies: Iterable[FolderCopy]) -> Iterator[str]:
    for folder in copies:
        code = [folder.source / file for file in folder.files if file.suffix == ".py"]
        if any(MODELS_CALLED.search(path.read_bytes()) for path in code):
            yield (
                f"`{folder.name}` calls models from its code: no config names them, so copy those "
                "yourself"
            )
