"""A private copy of a repository, in which models may do what they like."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path

from mmctl.errors import InputError
from mmctl.files import copy, inside, link_or_copy, read_text, write_text
from mmctl.lint.repository import Model, read_bytes
from mmctl.trials.runcheck.model import WarmUp
from mmctl.triton.pbtxt import without_gpus, without_warm_up
from mmctl.triton.repository import CONFIG

LARGE_BYTES = 8 * 1024 * 1024
"""Larger files are linked: weights, which nobody writes to. All else is copied."""

SKIPPED = frozenset({"__pycache__", ".git"})


def copy_model(model: Model, root: Path) -> bool:
    """Copy a model into `root`; whether its instances had to be moved from GPUs to the CPU.

    What cannot be read is left out: the server could not read it either.
    """
    folder = root / model.name
    _copy_folder(model.path, folder, frozenset({model.path.resolve()}))
    return _change_config(folder, without_gpus)


def drop_warm_up(root: Path, name: str) -> None:
    _change_config(root / name, lambda text, where: without_warm_up(text, where=where))


def read_code(model: Model) -> str:
    """All Python of the versions that are served, and mmctl's own plans: they name models."""
    paths = [
        path
        for version in model.served_versions
        for pattern in ("*.py", "plan.json")
        for path in sorted((model.path / str(version)).glob(pattern))
    ]
    return "\n".join(map(_text_of, paths))


def scales_by_batch(model: Model) -> bool:
    """Whether an ONNX model rounds with scales that it takes from the whole batch."""
    return any(_holds(path, b"DynamicQuantizeLinear") for path in model.path.glob("*/*.onnx"))


def read_warm_up(model: Model, warm_up: WarmUp) -> dict[str, bytes]:
    """The contents of its files by input; those that cannot be read are missing."""
    found = {}
    for name, file in warm_up.files.items():
        try:
            found[name] = read_bytes(inside(model.path / "warmup", file))
        except (OSError, InputError):
            continue
    return found


def _copy_folder(source: Path, target: Path, above: frozenset[Path]) -> None:
    """`above` are the folders that lead here: a link back to one would never end."""
    target.mkdir(parents=True, exist_ok=True)
    for path in _entries(source):
        if path.name in SKIPPED:
            continue
        if path.is_dir():
            real = path.resolve()
            if real not in above:
                _copy_folder(path, target / path.name, above | {real})
        elif path.is_file() and os.access(path, os.R_OK):
            put = link_or_copy if path.stat().st_size > LARGE_BYTES else copy
            put(path.resolve(), target / path.name)


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()


def _change_config(folder: Path, change: Callable[..., str]) -> bool:
    """A text that cannot be read stays: the server says what is wrong with it."""
    path = folder / CONFIG
    try:
        text = read_text(path)
        changed = change(text, where=str(path))
    except InputError:
        return False
    if changed == text:
        return False
    return write_text(path, changed)


def _holds(path: Path, word: bytes) -> bool:
    try:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(word) >= 0
    except (OSError, ValueError):
        return False


def _text_of(path: Path) -> str:
    try:
        return read_bytes(path).decode(errors="replace")
    except OSError:
        return ""
