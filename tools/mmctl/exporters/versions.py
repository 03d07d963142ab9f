"""Gives every build key its version: the folder, the lock and the configs of a model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmctl.errors import InputError
from mmctl.exporters.base import Say
from mmctl.exporters.configs import configs_of, doubts_about
from mmctl.exporters.keys import build_key, check_libraries
from mmctl.exporters.process import run_export
from mmctl.exporters.spec import Model, read_model, read_models
from mmctl.files import exclusive, new_folder, write_text, writing_to
from mmctl.triton.repository import (
    CONFIG,
    LOCK,
    MANIFEST,
    Lock,
    history_with,
    read_build_key,
    read_lock,
    render_lock,
    render_manifest,
    version_for,
)
from mmctl.workspace import Workspace

BUILD_LOCK = "build.lock"
"""The lock file of all commands that write versions, in the workspace's private state."""


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """What an export left. `changed` says whether it wrote anything at all."""

    name: str
    version: int
    lock: Lock
    changed: bool
    seconds: float


def export_model(
    workspace: Workspace, name: str, *, reprove: bool = False, force: bool = False, say: Say
) -> ExportOutcome:
    """Bring the version folder, lock and configs of a model up to its model.yaml.

    With the build key of the lock and its folder present nothing runs, unless `reprove` asks to
    export again and measure the gates anew. `force` accepts a precision that is not faster. Raises
    InputError, Refused, WorldError; then all files are as they were before.
    """
    started = time.monotonic()
    model = read_model(workspace, name)
    key = build_key(workspace, model)
    lock = read_lock(model.place.folder)
    version = version_for(lock, key)
    final = model.place.folder / str(version)
    fresh = lock is None or lock.build_key != key or read_build_key(final) != key
    if lock is None or fresh or reprove:
        lock = _make_version(model, key, lock, reprove=reprove, force=force, say=say)
    changed = _write_committed(model, lock) or fresh
    for finding in doubts_about(model):
        say(finding.text())
    return ExportOutcome(name, version, lock, changed, time.monotonic() - started)


def export_models(
    workspace: Workspace,
    names: Sequence[str],
    *,
    reprove: bool = False,
    force: bool = False,
    say: Say,
) -> list[ExportOutcome]:
    """Export several models, one build at a time; stops at the first that fails.

    Mistakes in any model.yaml are raised together, before anything runs.
    """
    read_models(workspace, names)
    with exclusive(workspace.state / BUILD_LOCK, lambda: say("waiting for another build")):
        return [
            export_model(workspace, name, reprove=reprove, force=force, say=say) for name in names
        ]


def _make_version(
    model: Model, key: str, before: Lock | None, *, reprove: bool, force: bool, say: Say
) -> Lock:
    """Export into a new version folder; returns the lock to write."""
    check_libraries(model.file)
    version = version_for(before, key)
    final = model.place.folder / str(version)
    _refuse_to_replace(model, final)
    located = model.file.source.locate(model.place, say)
    say(f"{model.name}: exporting version {version}")
    with new_folder(final) as out:
        made = replace(
            run_export(
                model, key, located, out, known=_known_files(before, key, reprove), force=force
            ),
            version=version,
            history=history_with(before, version, key),
        )
        _tell_doubts(made, model.name, say)
        lock = _lock_to_keep(made, before, reprove=reprove, say=say, name=model.name)
        write_text(out / MANIFEST, _manifest(lock, configs_of(model, lock)))
        with writing_to(final):
            shutil.rmtree(final, ignore_errors=True)
    return lock


def _known_files(before: Lock | None, key: str, reprove: bool) -> Mapping[str, str]:
    """What the lock proves already: a clean clone makes the files again and measures nothing."""
    return before.files if before and before.build_key == key and not reprove else {}


def _tell_doubts(lock: Lock, name: str, say: Say) -> None:
    for gate in lock.evidence:
        if "warning" in gate:
            say(f"warning: {name}: {gate['gate']}: {gate['warning']}")


def _lock_to_keep(made: Lock, before: Lock | None, *, reprove: bool, say: Say, name: str) -> Lock:
    """A lock of the same key stays as it is: measurements of one machine change no file."""
    if before is None or before.build_key != made.build_key:
        return made
    if dict(before.files) != dict(made.files):
        say(f"{name}: other bytes than the lock's, from the same build key: the same version")
    return made if reprove else before


def _refuse_to_replace(model: Model, final: Path) -> None:
    if final.exists() and read_build_key(final) is None:
        raise InputError(
            f"{model.place.workspace.shown(final)}: was not made by mmctl, and the next version "
            "belongs there",
            hint="move the folder away",
        )


def _write_committed(model: Model, lock: Lock) -> bool:
    """Manifest, configs and, last, the lock; each only when its text differs."""
    folder = model.place.folder
    configs = configs_of(model, lock)
    manifest = folder / str(lock.version) / MANIFEST
    written = [write_text(manifest, _manifest(lock, configs))]
    written += [write_text(folder / path, text) for path, text in configs.items()]
    for stray in folder.glob("configs/*.pbtxt"):
        if f"configs/{stray.name}" not in configs:
            with writing_to(stray):
                stray.unlink()
            written.append(True)
    written.append(write_text(folder / LOCK, render_lock(lock)))
    return any(written)


def _manifest(lock: Lock, configs: Mapping[str, str]) -> str:
    return render_manifest(lock.version, lock.build_key, configs[CONFIG], {})
