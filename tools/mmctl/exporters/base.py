"""What an export source is: the entry under `source:` in model.yaml, and how it becomes files."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator

from mmctl.documents import Entry
from mmctl.tensors import Signature
from mmctl.triton.generate import ONNX, Backend
from mmctl.workspace import Workspace

Say = Callable[[str], None]
Evidence = Mapping[str, Any]
"""One gate that passed and what it measured, as model.lock keeps it."""


def matching(pattern: str, wanted: str) -> AfterValidator:
    """For fields of text: `wanted` says what the whole of it must be."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"`{value}` is not {wanted}")
        return value

    return AfterValidator(check)


Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "a SHA-256, 64 digits of 0-9 and a-f")]
Commit = Annotated[str, matching(r"[0-9a-f]{40}", "a commit, 40 digits of 0-9 and a-f")]
TensorName = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "an identifier")]
Function = Annotated[str, matching(r"[A-Za-z_]\w*:[A-Za-z_]\w*", "`module:function`")]
Requirement = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]*==[^\s;,]+", "a pinned package, `name==version`")
]


@dataclass(frozen=True, slots=True)
class Place:
    """A model of a workspace: paths in its model.yaml are relative to its folder."""

    workspace: Workspace
    name: str

    @property
    def folder(self) -> Path:
        return self.workspace.models / self.name

    @property
    def shown(self) -> str:
        return self.workspace.shown(self.folder)


@dataclass(frozen=True, slots=True)
class Task:
    """One export. `located` is what `Source.locate` found; files go into the folder `out`.

    `batched` says whether the tensors shall have a batch axis in front. `declared` holds the
    tensors that model.yaml declares itself, which only a `python` source does.
    """

    place: Place
    located: Path
    out: Path
    batched: bool
    rename: Mapping[str, str]
    tolerance: float
    declared: Signature


@dataclass(frozen=True, slots=True)
class Exported:
    """What is in `Task.out` now; `signature.max_batch` is 0 or 1, as in a lock."""

    signature: Signature
    evidence: tuple[Evidence, ...]


class Source(Entry, ABC):
    """Base of the entries under `source:`. One kind is one class and one row in `SOURCES`."""

    backend: ClassVar[Backend] = ONNX
    libraries: ClassVar[tuple[str, ...]] = ()
    """Rows of `keys.LIBRARIES` that shape the exported bytes."""

    pip: Requirement | None = None
    """The model package that the source reads, a line of packages.txt."""

    @property
    def uses_packages(self) -> bool:
        return self.pip is not None

    @abstractmethod
    def origin(self, place: Place) -> Mapping[str, object]:
        """What the model is made from, as JSON, for the build key.

        Reads small files only: weights count by the hash that somebody declared.
        """

    @abstractmethod
    def locate(self, place: Place, say: Say) -> Path:
        """The file or folder to export from, fetched and with its declared hash verified."""

    @abstractmethod
    def export(self, task: Task) -> Exported:
        """Write the version's files into `task.out`; runs in a child process.

        Raises InputError for what cannot be exported, Refused when a gate fails.
        """
