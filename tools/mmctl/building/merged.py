"""Merged models: what their version is made from, and the making of their model.onnx."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from mmctl.building.catalog import foreign_calls
from mmctl.building.compiled import PlannedModel, PlannedPipeline
from mmctl.errors import InputError, Refused
from mmctl.exporters.merge import run_merge
from mmctl.files import new_folder, write_text, writing_to
from mmctl.tensors import Signature
from mmctl.triton.generate import ONNX
from mmctl.triton.recipe import MergeRecipe
from mmctl.triton.repository import (
    CONFIG,
    LOCK,
    MANIFEST,
    Lock,
    is_foreign,
    read_build_key,
    read_lock,
    render_lock,
    render_manifest,
)
from mmctl.workspace import Workspace

Say = Callable[[str], None]


def refuse_unproven(pipelines: Iterable[PlannedPipeline]) -> None:
    """Raises InputError when a merged model was never made of what its members are now."""
    for pipeline in pipelines:
        for planned in pipeline.models:
            if not planned.is_proven:
                raise InputError(
                    f"{planned.model.origin}: `{planned.model.name}` was not merged yet of what "
                    "its members are now, which takes their weights",
                    hint="run `mmctl build`",
                )


def with_merged_file(
    workspace: Workspace, planned: PlannedModel, say: Say, *, reprove: bool
) -> PlannedModel:
    """The version folder of a merged model, made unless it is there and proven; returns the plan
    with what the gates measured. Raises Refused, InputError, WorldError.
    """
    recipe = planned.model.merge
    final = workspace.models / planned.model.name / str(planned.lock.version)
    is_there = read_build_key(final) == planned.lock.build_key
    if recipe is None or (is_there and planned.is_proven and not reprove):
        return planned
    say(f"{planned.model.name}: merging version {planned.lock.version}")
    with new_folder(final) as out:
        made = _merge(workspace, planned, recipe, out)
        manifest = render_manifest(
            planned.lock.version, planned.lock.build_key, planned.texts[CONFIG], {}
        )
        write_text(out / MANIFEST, manifest)
        with writing_to(final):
            shutil.rmtree(final, ignore_errors=True)
    if planned.is_proven and not reprove:
        return planned  # measurements of one machine change no file
    lock = replace(planned.lock, files=made.files, evidence=made.evidence)
    return replace(planned, lock=lock, texts={**planned.texts, LOCK: render_lock(lock)})


def only_merged(workspace: Workspace, pipelines: Iterable[PlannedPipeline]) -> set[str]:
    """Models that are members of merged ones and that nobody calls: these need not be served."""
    planned = [model for pipeline in pipelines for model in pipeline.models]
    called = {name for p in planned for name in p.model.calls}
    own = [name for name in workspace.model_names() if is_foreign(workspace.models / name)]
    called.update(*(foreign_calls(workspace, name) for name in own))
    recipes = [p.model.merge for p in planned if p.model.merge is not None]
    return {member.model for recipe in recipes for member in recipe.members} - called


def _merge(workspace: Workspace, planned: PlannedModel, recipe: MergeRecipe, out: Path) -> Lock:
    files = {m.name: _file_of(workspace, m.model) for m in recipe.members}
    name, key = planned.model.name, planned.lock.build_key
    made = run_merge(workspace, name, recipe, files, out, key)
    found, wanted = made.signature, planned.lock.signature
    if found != wanted:
        raise Refused(
            f"{name}: merged it has {_shown(found)}; its members have {_shown(wanted)}",
            hint="leave one of them out of `fuse`",
        )
    return made


def _shown(signature: Signature) -> str:
    return ", ".join(str(spec) for spec in (*signature.inputs, *signature.outputs))


def _file_of(workspace: Workspace, model: str) -> Path:
    """The file of the locked version."""
    folder = workspace.models / model
    lock = read_lock(folder)
    assert lock is not None, "models are exported before pipelines are built"
    return folder / str(lock.version) / ONNX.filename
