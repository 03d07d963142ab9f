"""Writes a plan. Each step notes how it is undone, and is undone when a later one fails."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from mmctl.building.adopt.chosen import KEPT, content
from mmctl.building.adopt.plan import Plan
from mmctl.building.build import Say, write_pipeline
from mmctl.building.catalog import read_catalog
from mmctl.building.compiled import plan_pipelines
from mmctl.errors import WorldError
from mmctl.files import copy, exclusive, link_or_copy, new_folder, read_text, write_text, writing_to
from mmctl.triton.pbtxt import render_config
from mmctl.triton.repository import CONFIG
from mmctl.workspace import Workspace

Place = Callable[[Path, Path], None]


def adopt(workspace: Workspace, plan: Plan, say: Say, *, link: bool = False) -> None:
    """Write what the plan says, or leave everything as it was.

    `link`: hard links for the files of called models, where the disk allows it. Raises WorldError
    when the disk fails or files changed since the plan, InputError when the workspace has another
    mistake.
    """
    assert not plan.refused
    place = link_or_copy if link else _copy
    with (
        exclusive(workspace.state / "build.lock", lambda: say("waiting for a build")),
        ExitStack() as undo,
    ):
        _write(workspace, plan, say, undo, place)
        undo.pop_all()


def _copy(source: Path, target: Path) -> None:
    """Some models bring programs of their own."""
    copy(source, target)
    with writing_to(target):
        shutil.copymode(source, target)


def _write(workspace: Workspace, plan: Plan, say: Say, undo: ExitStack, place: Place) -> None:
    """`undo` takes back, last first, what was done until then."""
    for room in (workspace.models, workspace.pipelines):
        if not room.exists():
            with writing_to(room):
                room.mkdir()
            undo.callback(room.rmdir)
    for folder in plan.copies:
        with new_folder(workspace.models / folder.name) as made:
            for path in folder.folders:
                (made / path).mkdir(parents=True)
            for path in folder.files:
                place(folder.source / path, made / path)
        undo.callback(_remove, workspace.models / folder.name)
    for adoption in plan.adoptions:
        with new_folder(workspace.pipelines / adoption.name) as made:
            write_text(made / "pipeline.yaml", adoption.adopted.text)
            write_text(made / KEPT, content(adoption.model))
        undo.callback(_remove, workspace.pipelines / adoption.name)
    originals = _set_aside(workspace, plan, undo) if plan.own else None
    _compile(workspace, plan, say, undo)
    if originals is not None:
        _remove(originals)


def _set_aside(workspace: Workspace, plan: Plan, undo: ExitStack) -> Path:
    """Move the originals out of the way, on the same disk: a rename brings them back."""
    with writing_to(workspace.models):
        aside = Path(tempfile.mkdtemp(dir=workspace.models, prefix=".adopt."))
    undo.callback(_remove, aside)
    for adoption in plan.adoptions:
        here, there = workspace.models / adoption.name, aside / adoption.name
        if read_text(here / CONFIG) != content(adoption.model):
            raise _changed(workspace.shown(here / CONFIG))
        with writing_to(here):
            os.rename(here, there)
        undo.callback(os.rename, there, here)
    return aside


def _compile(workspace: Workspace, plan: Plan, say: Say, undo: ExitStack) -> None:
    """As any build would, from the files as they are now: it must give what was proven."""
    proven = {adoption.name: adoption.adopted.compiled for adoption in plan.adoptions}
    for pipeline in plan_pipelines(workspace, read_catalog(workspace), list(proven)):
        compiled = proven.get(pipeline.source.name)
        if compiled is None:
            continue  # a pipeline that was there before
        config = compiled.models[-1].configs[CONFIG]
        if pipeline.models[-1].texts[CONFIG] != render_config(config):
            raise _changed(f"what `{pipeline.source.name}` calls")
        for planned in pipeline.models:
            folder = workspace.models / planned.model.name
            if not folder.exists():
                undo.callback(_remove, folder)
        write_pipeline(workspace, pipeline, say)


def _changed(what: str) -> WorldError:
    return WorldError(
        f"{what} changed while the plan was shown", hint="nothing was written: run it again"
    )


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
