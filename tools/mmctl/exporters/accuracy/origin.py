"""Which files of calibration/ samples are made from: found, and hashed for the build key.

A generator's module may import modules beside it, and reads data from the folder of its name:
calibration/photos.py has its pictures in calibration/photos/.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.files import digest_of, sha256_file

FOLDER = "calibration"


def digest_of_samples(root: Path, address: str) -> str:
    """SHA-256 over every file that samples, or a metric, are made from."""
    file = file_of(root, address)
    made_from = _files_of(file) if file.suffix == ".py" else [file]
    folder = root / FOLDER
    return digest_of({path.relative_to(folder).as_posix(): sha256_file(path) for path in made_from})


def file_of(root: Path, address: str) -> Path:
    """Raises InputError, with the nearest name there is."""
    module, colon, _function = address.partition(":")
    path = root / FOLDER / (f"{module}.py" if colon else address)
    if not path.is_file():
        alike = sorted(path.parent.glob(f"*{path.suffix}"))
        names = [file.stem if colon else file.name for file in alike]
        raise InputError(
            f"`{address}`: {path.relative_to(root)} does not exist",
            hint=nearest(module if colon else address, names),
        )
    return path


def _files_of(module: Path) -> Iterator[Path]:
    """The module and all that it imports of its folder, each with the folder of its name."""
    seen: set[Path] = set()
    waiting = [module]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        yield from _data_of(path.with_suffix(""))
        beside = (path.with_name(f"{name}.py") for name in _imports(path))
        waiting += [found for found in beside if found.is_file()]


def _data_of(folder: Path) -> Iterator[Path]:
    """All files but hidden ones and Python's caches."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not hidden:
            yield path


def _imports(module: Path) -> set[str]:
    """Top names of what it imports, anywhere in it; none while it does not parse."""
    try:
        tree = ast.parse(module.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}
