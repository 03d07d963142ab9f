"""The served tree: the folder that a Triton reads, made from the source tree.

It holds configs with every call pinned and a version policy, version folders as hard links, and
pre-compiled shipped Python; no model.yaml, lock or sample. What is there and right stays as it
is, to the modification time: Triton reloads what has moved.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import InputError
from mmctl.files import copy, inside, link_or_copy, new_folder, read_text, write_text, writing_to
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import parse_config, pin_config, with_parameter
from mmctl.triton.repository import (
    CONFIG,
    DIGEST,
    MANIFEST,
    content_digest,
    is_foreign,
    read_build_key,
    read_lock,
    render_digests,
)
from mmctl.workspace import Workspace

Versions = tuple[int, ...]
Precompile = Callable[[Sequence[Path]], None]


def ledger_path(root: Path) -> Path:
    """Its presence says that the tree is what was deployed."""
    return root.with_name(f"{root.name}.ledger.jsonl")


def lock_path(root: Path) -> Path:
    """Held by whoever changes the tree."""
    return root.with_name(f"{root.name}.lock")


@dataclass(frozen=True, slots=True)
class ServedTree:
    """`models` callees first, with the versions of each that the tree was made for; `changed` are
    those whose config or version folder was written now. `whole` says that every config names its
    tensors: Triton completes the user's own where they do not, at ten times the load time for all.
    """

    root: Path
    models: Mapping[str, Versions]
    changed: tuple[str, ...]
    whole: bool


def materialise(
    workspace: Workspace,
    models: Sequence[str],
    root: Path,
    *,
    precompile: Precompile | None = None,
    live: Mapping[str, Versions] | None = None,
) -> ServedTree:
    """Bring the served tree at `root` to what the locks say of `models` (callees first).

    `live` is what a running server has loaded from the tree: these versions stay beside the new
    ones, so that callees load before the pipeline switches to them. None removes all else.
    Raises InputError when a version folder is missing, WorldError when the disk fails.
    """
    versions = {name: _versions(workspace, name) for name in models}
    calls = {name: found[-1] for name, found in versions.items() if found}
    changed: list[str] = []
    new_folders: list[Path] = []
    for name in models:
        written = _serve_versions(workspace, name, versions[name], root / name)
        new_folders += written
        beside = live.get(name, ()) if live else ()
        if _serve_configs(workspace, name, (versions[name], beside), calls, root / name) or written:
            changed.append(name)
    if precompile and new_folders:
        precompile(new_folders)
    if live is None:
        _prune(root, versions)
    whole = all(_names_its_tensors(root / name / CONFIG) for name in models)
    return ServedTree(root, versions, tuple(changed), whole)


def _names_its_tensors(path: Path) -> bool:
    config = parse_config(read_text(path), where=str(path))
    return bool(config.inputs and config.outputs)


def read_tree(root: Path) -> ServedTree:
    """A tree that is there already, by its configs. Its models are in the order of their names."""
    versions = served_versions(root)
    whole = all(_names_its_tensors(root / name / CONFIG) for name in versions)
    return ServedTree(root, versions, (), whole)


def served_versions(root: Path) -> dict[str, Versions]:
    """Versions of each model that the configs of a tree ask for."""
    configs = sorted(root.glob(f"*/{CONFIG}"))
    return {
        path.parent.name: parse_config(read_text(path), where=str(path)).versions
        for path in configs
    }


def _versions(workspace: Workspace, name: str) -> Versions:
    """The locked version; for a foreign model all that its folder has."""
    folder = workspace.models / name
    if is_foreign(folder):
        names = [d.name for d in folder.iterdir() if d.is_dir()]
        return tuple(sorted(int(name) for name in names if re.fullmatch("[1-9][0-9]*", name)))
    lock = read_lock(folder)
    if lock is None or read_build_key(folder / str(lock.version)) != lock.build_key:
        raise InputError(f"`{name}` is not built", hint=f"run `mmctl build {name}`")
    return (lock.version,)


def _serve_versions(
    workspace: Workspace, name: str, versions: Iterable[int], served: Path
) -> list[Path]:
    """Version folders that were made or replaced."""
    written = []
    for version in versions:
        source = workspace.models / name / str(version)
        target = served / str(version)
        if target.is_dir() and _same_content(source, target):
            continue
        with writing_to(target):
            if target.exists():
                shutil.rmtree(target)
        # Versions of ours never change, so a link is safe; the user's own files may be edited.
        place = copy if is_foreign(workspace.models / name) else link_or_copy
        with new_folder(target) as folder:
            for path in _files(source):
                place(source / path, folder / path)
        written.append(target)
    return written


def _same_content(source: Path, target: Path) -> bool:
    """By build key, and by size and time of each file: an engine comes later than its version, and
    people edit their own.

    The manifest repeats settings, which the config brings: for them alone nothing is loaded anew.
    """
    files = _files(source)
    return (
        read_build_key(source) == read_build_key(target)
        and files == _files(target)
        and all(
            _is_current(source / path, target / path) for path in files if path.name != MANIFEST
        )
    )


def _is_current(source: Path, target: Path) -> bool:
    made, served = source.stat(), target.stat()
    return made.st_size == served.st_size and made.st_mtime_ns <= served.st_mtime_ns


def _files(folder: Path) -> list[Path]:
    """Relative paths of all files but Python's caches."""
    return sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    )


def _serve_configs(
    workspace: Workspace,
    name: str,
    versions: tuple[Versions, Versions],
    calls: Mapping[str, int],
    served: Path,
) -> bool:
    folder = workspace.models / name
    config = parse_config(read_text(folder / CONFIG), where=workspace.shown(folder / CONFIG))
    policy = () if is_foreign(folder) else _policy(config, *versions)
    digests = render_digests({v: _digest(served / str(v)) for v in versions[0]})
    written = []
    for path in (folder / CONFIG, *sorted((folder / "configs").glob("*.pbtxt"))):
        where, text = workspace.shown(path), read_text(path)
        text = pin_config(text, where=where, versions=policy, calls=calls, name=name)
        text = with_parameter(text, DIGEST, digests, where=where)
        written.append(write_text(served / path.relative_to(folder), text))
    for extra in extra_files(folder, config):
        target = served / extra.relative_to(folder)
        if not target.is_file() or target.read_bytes() != extra.read_bytes():
            target.unlink(missing_ok=True)
            link_or_copy(extra, target)
            written.append(True)
    return any(written)


def _digest(version: Path) -> str:
    return read_build_key(version) or content_digest(version)


def extra_files(folder: Path, config: ModelConfig) -> list[Path]:
    """What a config names beside itself: labels and warm-up data. Raises InputError for labels
    outside of the model's folder.
    """
    where = f"{folder.name}/{CONFIG}"
    named = [tensor.label_filename for tensor in config.outputs if tensor.label_filename]
    labels = [inside(folder, name, where=where) for name in named]
    return [*labels, *(path for path in (folder / "warmup").rglob("*") if path.is_file())]


def _policy(config: ModelConfig, new: Versions, beside: Versions) -> Versions:
    """Versions of an ensemble share one config, so an old one cannot stay beside a new one."""
    return new if config.steps else tuple(sorted({*new, *beside}))


def _prune(root: Path, versions: Mapping[str, Versions]) -> None:
    """Remove what is not served: only ever inside mmctl's own tree."""
    for model in root.iterdir():
        if model.name not in versions:
            shutil.rmtree(model, ignore_errors=True)
            continue
        keep = {str(version) for version in versions[model.name]}
        for folder in model.iterdir():
            if folder.is_dir() and folder.name.isdigit() and folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)
