"""Where things are: the folder with mmctl.yaml and the rooms inside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mmctl.diagnostics import nearest
from mmctl.documents import Entry, load_entry, read_document
from mmctl.errors import InputError

FILE = "mmctl.yaml"
STATE = ".mmctl"
PACKAGES = f"{STATE}/packages"
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Target(Entry):
    """A Triton to talk to."""

    url: str
    repository: str | None = None
    """What it reads: a folder as this machine sees it, or `s3://` and `gs://`."""
    release: str = "24.10"
    tensorrt: str | None = None
    """Its TensorRT, where that is not what mmctl knows of the release."""
    gpus: int = 0
    headers_env: str | None = None
    profile: str | None = None


class Defaults(Entry):
    """What commands take when the user does not say."""

    target: str = "embedded"
    release: str = "24.10"


class WorkspaceFile(Entry):
    """The shape of mmctl.yaml."""

    targets: Annotated[dict[str, Target], Field(default_factory=dict)]
    defaults: Defaults = Defaults()


@dataclass(frozen=True)
class Workspace:
    """A folder with mmctl.yaml. Only paths and settings; reading models is another room's work."""

    root: Path
    targets: Mapping[str, Target]
    defaults: Defaults

    @cached_property
    def models(self) -> Path:
        return self.root / "model_repository"

    @cached_property
    def pipelines(self) -> Path:
        return self.root / "ensembles"

    @cached_property
    def state(self) -> Path:
        """Private state, never committed: runtime, packages, served trees, servers."""
        return self.root / STATE

    @property
    def packages(self) -> Path:
        return self.root / PACKAGES

    def served(self, target: str) -> Path:
        return self.state / "served" / target

    def target(self, name: str) -> Target:
        """A target of mmctl.yaml. Raises InputError, with the nearest name, for any other."""
        if name in self.targets:
            return self.targets[name]
        hint = nearest(name, self.targets) or "add it under `targets` in mmctl.yaml"
        raise InputError(f"`{name}` is not a target of mmctl.yaml", hint=hint)

    def shown(self, path: Path) -> str:
        """The path as messages name it: relative to the workspace where it can be."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def model_names(self) -> list[str]:
        """Folders of the model repository that are models, generated ones included."""
        return _folders_with(self.models, "model.yaml", "config.pbtxt", ".mmctl.json")

    def pipeline_names(self) -> list[str]:
        return _folders_with(self.pipelines, "pipeline.yaml")


def find_workspace(start: Path) -> Workspace:
    """The workspace of the nearest folder, from `start` upwards, that has mmctl.yaml."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return read_workspace(folder)
    raise InputError(
        f"{start}: no `{FILE}` here or in a folder above",
        hint="run `mmctl init DIR` to make a workspace, or pass `-C DIR`",
    )


def read_workspace(root: Path) -> Workspace:
    file = load_entry(WorkspaceFile, read_document(root / FILE, shown=FILE))
    return Workspace(root, file.targets, file.defaults)


def check_name(name: str, *, generated: bool = False) -> str | None:
    """What is wrong with a name of a model, pipeline or node; None when it may become a path."""
    if not NAME.fullmatch(name):
        return f"`{name}` is not a name: use a-z, 0-9 and _, a letter first"
    if "__" in name and not generated:
        return f"`{name}`: `__` is reserved for folders that mmctl generates"
    return None


def _folders_with(root: Path, *files: str) -> list[str]:
    if not root.is_dir():
        return []
    return sorted(
        folder.name
        for folder in root.iterdir()
        if folder.is_dir() and any((folder / file).is_file() for file in files)
    )
