"""Source `python`: a model.py of the user's own, for Triton's Python backend.

    source: {python: model.py, files: [words.txt]}
    inputs: {text: string}
    outputs: {label: string}

It is copied, not run: what it imports belongs to the server's environment.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from mmctl.errors import InputError, Refused
from mmctl.exporters.base import Exported, Place, Say, Source, Task
from mmctl.exporters.resources import existing_file
from mmctl.files import is_inside, sha256_file, writing_to
from mmctl.triton.generate import PYTHON, Backend

SERVER_PYTHON = (3, 10)
"""The oldest Python of a Triton that mmctl serves with, that of release 24.10's container."""


def _inside(path: str) -> str:
    if not is_inside(path):
        raise ValueError(f"`{path}` is not a path inside the model's folder")
    return path


InsidePath = Annotated[str, AfterValidator(_inside)]


class PythonSource(Source):
    """`python` becomes the version's model.py; `files` are copied beside it under their paths."""

    backend: ClassVar[Backend] = PYTHON

    python: InsidePath
    files: tuple[InsidePath, ...] = ()

    def origin(self, place: Place) -> Mapping[str, object]:
        return {
            name: sha256_file(existing_file(place, path)) for name, path in self._copies().items()
        }

    def locate(self, place: Place, say: Say) -> Path:
        return existing_file(place, self.python)

    def export(self, task: Task) -> Exported:
        _check_model(task.located)
        for name, path in self._copies().items():
            target = task.out / name
            with writing_to(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(task.place.folder / path, target)
        version = ".".join(map(str, SERVER_PYTHON))
        return Exported(task.declared, ({"gate": "syntax", "python": version},))

    def _copies(self) -> dict[str, str]:
        """Paths inside the version folder -> inside the model's."""
        return {**{path: path for path in self.files}, PYTHON.filename: self.python}


def _check_model(file: Path) -> None:
    """The syntax tree alone says whether Triton finds its class; nothing is run."""
    try:
        tree = ast.parse(file.read_bytes(), feature_version=SERVER_PYTHON)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else 1
        raise InputError(f"{file.name}:{line}: not Python: {error}") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    model = next((node for node in classes if node.name == "TritonPythonModel"), None)
    if model is None:
        raise Refused(
            f"{file.name} has no class `TritonPythonModel`",
            hint="Triton's Python backend looks for it, with a method `execute(self, requests)`",
        )
    methods = [node.name for node in model.body if isinstance(node, ast.FunctionDef)]
    if "execute" not in methods:
        raise Refused(
            f"{file.name}:{model.lineno}: `TritonPythonModel` has no method `execute`",
            hint="add `def execute(self, requests)`",
        )
