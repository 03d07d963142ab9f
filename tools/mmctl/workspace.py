"""Where things are: the folder with mmctl.yaml and the rooms inside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from mmctl.diagnostics import nearest
from mmctl.documents import Entry, load_entry, read_document
from mmctl.errors import InputError
from mmctl.files import inside

FILE = "mmctl.yaml"
STATE = ".mmctl"
PACKAGES = f"{STATE}/packages"
NAME = re.compile(r"[a-z][a-z0-9_]*")


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


Several = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
"""One, or a list."""


class TlsFiles(Entry):
    """Files of a TLS connection, by path from the workspace on: who vouches for the server, and
    who we are where it asks.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class Target(Entry):
    """A Triton to talk to, or several replicas that serve the same."""

    url: Several
    repository: Several | None = None
    """What it reads: a folder as this machine sees it, or `s3://` and `gs://`. One for all
    replicas, or one for each.
    """
    release: str | None = None
    """Where the server shall not be asked, or cannot be."""
    tls: TlsFiles | None = None
    store: str | None = None
    """The cache that its clients share, which hears of deployments."""
    tensorrt: str | None = None
    """Its TensorRT, where that is not what mmctl knows of the release."""
    gpus: int = 0
    headers_env: str | None = None
    profile: str | None = None

    @model_validator(mode="after")
    def _has_a_repository_for_each(self) -> Self:
        if self.repository and len(self.repository) not in (1, len(self.url)):
            raise ValueError(
                f"{len(self.url)} urls and {len(self.repository)} repositories: "
                "write one repository for all, or one for each"
            )
        return self


class Defaults(Entry):
    """What commands take when the user does not say."""

    target: str = "embedded"
    release: str = "24.10"


class Cost(Entry):
    """What serving costs an hour, in any currency, and what `tune --cost` makes the most of:
    `throughput`·answers a second / cost an hour + `latency` / seconds.
    """

    per_hour: Annotated[float, Field(gt=0)]
    per_instance_hour: Annotated[float, Field(ge=0)] = 0.0
    throughput: Annotated[float, Field(ge=0)] = 1.0
    latency: Annotated[float, Field(ge=0)] = 1.0


class WorkspaceFile(Entry):
    """The shape of mmctl.yaml."""

    targets: Annotated[dict[str, Target], Field(default_factory=dict)]
    defaults: Defaults = Defaults()
    cost: Cost | None = None
    cache: object = None
    """Read by the room of caches (cache/settings.py), which knows its shape."""


@dataclass(frozen=True)
class Workspace:
    """A folder with mmctl.yaml. Only paths and settings; reading models is another room's work."""

    root: Path
    targets: Mapping[str, Target]
    defaults: Defaults
    cost: Cost | None = None

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
        return inside(self.state / "served", target)

    def target(self, name: str) -> Target:
        """A target of mmctl.yaml. Raises InputError, with the nearest name, for any other."""
        if name in self.targets:
            return self.targets[name]
        hint = nearest(name, self.targets) or "add it under `targets` in mmctl.yaml"
        raise InputError(f"`{name}` is not a target of mmctl.yaml", hint=hint)

    def release_of(self, name: str) -> str:
        """The release that a target of mmctl.yaml states, else the one of the defaults."""
        return self.target(name).release or self.defaults.release

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
    return Workspace(root, file.targets, file.defaults, file.cost)


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
