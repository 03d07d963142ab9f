"""Makes what a workspace declares: exports models, writes generated folders, tells what changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmctl.building.catalog import Catalog, foreign_calls, read_catalog
from mmctl.building.check import refuse_mistakes
from mmctl.building.compiled import PlannedModel, PlannedPipeline, plan_pipelines
from mmctl.building.merged import only_merged, refuse_unproven, with_merged_file
from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.exporters import export_model
from mmctl.exporters.packages import fetch, resolve
from mmctl.files import (
    exclusive,
    link_or_copy,
    new_folder,
    sha256_file,
    write_bytes,
    write_text,
    writing_to,
)
from mmctl.pipeline import read_pipeline
from mmctl.triton.repository import (
    CONFIG,
    LOCK,
    MANIFEST,
    MARKER,
    Resource,
    is_foreign,
    is_generated,
    read_build_key,
    read_marker,
    render_manifest,
)
from mmctl.workspace import Workspace

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Built:
    """What a build left: pipelines as planned, and every model that serves them, callees first."""

    pipelines: tuple[PlannedPipeline, ...]
    models: tuple[str, ...]


def build(workspace: Workspace, names: Sequence[str], say: Say, *, reprove: bool = False) -> Built:
    """Build `names` (models or pipelines; empty means everything) and all that they call.

    Nothing is rewritten that is up to date. Raises InputError, InvalidFiles, Refused, WorldError.
    """
    asked = names or everything(workspace)
    wanted = closure(workspace, asked)
    with exclusive(workspace.state / "build.lock", lambda: say("waiting for another build")):
        built = _build(workspace, wanted, say, reprove=reprove)
    needless = only_merged(workspace, built.pipelines) - set(asked)
    return replace(built, models=tuple(name for name in built.models if name not in needless))


def _build(workspace: Workspace, wanted: Sequence[str], say: Say, *, reprove: bool) -> Built:
    catalog = read_catalog(workspace)
    if needs_packages(workspace, wanted, catalog):
        fetch(workspace, say)
    for name in wanted:
        if name in catalog.models:
            export_model(workspace, name, reprove=reprove, say=say)
    catalog = read_catalog(workspace)
    pipelines = plan_pipelines(workspace, catalog, _pipelines_of(workspace, wanted))
    for pipeline in pipelines:
        write_pipeline(workspace, pipeline, say, reprove=reprove)
    _remove_orphans(workspace, pipelines, say)
    refuse_mistakes(workspace, catalog.foreign.keys() & set(wanted), say)
    generated = [planned.model.name for p in pipelines for planned in p.models]
    callable_names = [name for name in wanted if name in catalog.models or name in catalog.foreign]
    return Built(pipelines, (*callable_names, *generated))


def compile_only(workspace: Workspace, names: Sequence[str]) -> tuple[PlannedPipeline, ...]:
    """Type-check pipelines and write their committed files; needs locks, no weights.

    Raises InputError also for a merged model that only a build can bring up to date.
    """
    wanted = closure(workspace, names or workspace.pipeline_names())
    pipelines = plan_pipelines(workspace, read_catalog(workspace), _pipelines_of(workspace, wanted))
    refuse_unproven(pipelines)
    for pipeline in pipelines:
        for planned in pipeline.models:
            _claim(workspace, planned)
            _write_committed(workspace, planned)
    return pipelines


def everything(workspace: Workspace) -> list[str]:
    """Every model that people made, and every pipeline."""
    made = [n for n in workspace.model_names() if not is_generated(workspace.models / n)]
    return [*made, *workspace.pipeline_names()]


def closure(workspace: Workspace, names: Iterable[str]) -> tuple[str, ...]:
    """`names` and all that they call, callees first. Raises InputError for an unknown name."""
    known = everything(workspace)
    found: dict[str, None] = {}
    open_names: set[str] = set()

    def visit(name: str) -> None:
        if name in found or name in open_names:
            return  # a circle is the compiler's finding, with the place
        open_names.add(name)
        for callee in sorted(_callees(workspace, name)):
            if callee in known:
                visit(callee)
        found[name] = None

    for name in names:
        if name not in known:
            raise InputError(
                f"`{name}` is neither a model nor a pipeline of this workspace",
                hint=nearest(name, known),
            )
        visit(name)
    return tuple(found)


def _callees(workspace: Workspace, name: str) -> set[str]:
    if name in workspace.pipeline_names():
        return read_pipeline(workspace, name).called_names()
    if is_foreign(workspace.models / name):
        return set(foreign_calls(workspace, name))
    return set()


def _pipelines_of(workspace: Workspace, names: Iterable[str]) -> list[str]:
    pipelines = set(workspace.pipeline_names())
    return [name for name in names if name in pipelines]


def needs_packages(workspace: Workspace, names: Iterable[str], catalog: Catalog) -> bool:
    """Whether one of `names` is made from a model package."""
    pipelines = set(workspace.pipeline_names())
    return any(
        read_pipeline(workspace, name).uses_packages
        if name in pipelines
        else name in catalog.models and catalog.models[name].uses_packages
        for name in names
    )


def write_pipeline(
    workspace: Workspace, pipeline: PlannedPipeline, say: Say, *, reprove: bool = False
) -> None:
    """Its committed files and version folders. The caller holds the lock of the build."""
    for planned in pipeline.models:
        _claim(workspace, planned)
        made = with_merged_file(workspace, planned, say, reprove=reprove)
        changed = _write_version(workspace, made)
        if _write_committed(workspace, made) or changed:
            say(f"{made.model.name}: compiled version {made.lock.version}")


def _write_version(workspace: Workspace, planned: PlannedModel) -> bool:
    """Make the version folder unless it is there with the same build key."""
    final = workspace.models / planned.model.name / str(planned.lock.version)
    if read_build_key(final) == planned.lock.build_key:
        return False
    shutil.rmtree(final, ignore_errors=True)
    with new_folder(final) as folder:
        for path, content in planned.model.files.items():
            write_bytes(folder / path, content)
        for path, resource in planned.model.resources.items():
            link_or_copy(_verified(workspace, planned, resource), folder / path)
        manifest = render_manifest(
            planned.lock.version, planned.lock.build_key, planned.texts[CONFIG], planned.calls
        )
        write_text(folder / MANIFEST, manifest)
    return True


def _verified(workspace: Workspace, planned: PlannedModel, resource: Resource) -> Path:
    file = resolve(workspace, resource.address)
    if resource.sha256 and (found := sha256_file(file)) != resource.sha256:
        raise InputError(
            f"{planned.model.origin}: `{resource.address}` has sha256 {found}, "
            f"its assets.yaml says {resource.sha256}",
            hint="correct the hash if this is the file that you mean",
        )
    return file


def _write_committed(workspace: Workspace, planned: PlannedModel) -> bool:
    """The lock goes last: what it tells of is there when it says so."""
    folder = workspace.models / planned.model.name
    texts = sorted(planned.texts.items(), key=lambda item: item[0] == LOCK)
    written = [write_text(folder / path, text) for path, text in texts]
    return any(written)


def _claim(workspace: Workspace, planned: PlannedModel) -> None:
    """Mark the folder as generated, before anything else is in it; never take over another's."""
    folder = workspace.models / planned.model.name
    if folder.exists() and not is_generated(folder) and any(folder.iterdir()):
        raise InputError(
            f"{workspace.shown(folder)}: is not a folder that mmctl generated, so it is not "
            f"overwritten for {planned.model.origin}",
            hint="rename the folder, or the pipeline",
        )
    write_text(folder / MARKER, planned.texts[MARKER])


def orphans(workspace: Workspace, pipelines: Iterable[PlannedPipeline]) -> list[Path]:
    """Generated folders that their pipeline, or any pipeline that exists, makes no more."""
    made = {planned.model.name for p in pipelines for planned in p.models}
    origins = {planned.model.origin for p in pipelines for planned in p.models}
    found = []
    for name in workspace.model_names():
        folder = workspace.models / name
        origin = read_marker(folder) if is_generated(folder) else None
        if origin is None or name in made:
            continue
        if origin in origins or not (workspace.root / origin).is_file():
            found.append(folder)
    return found


def _remove_orphans(workspace: Workspace, pipelines: Sequence[PlannedPipeline], say: Say) -> None:
    for folder in orphans(workspace, pipelines):
        with writing_to(folder):
            (folder / CONFIG).unlink(missing_ok=True)
            shutil.rmtree(folder)
        say(f"{folder.name}: removed, no pipeline makes it any more")
