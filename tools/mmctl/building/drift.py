"""`mmctl build --check`: are the committed files what would be generated now?

Reads locks, configs and sources; needs neither torch nor weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mmctl.building.build import orphans
from mmctl.building.catalog import Catalog, read_catalog
from mmctl.building.compiled import plan_pipelines
from mmctl.exporters.configs import configs_of
from mmctl.exporters.keys import build_key
from mmctl.triton.repository import LOCK
from mmctl.workspace import Workspace


def find_drift(workspace: Workspace) -> list[str]:
    """One line for each committed file that is not what would be generated; empty when all are."""
    catalog = read_catalog(workspace)
    found = list(_model_drift(workspace, catalog))
    if found:
        return found  # pipelines rest on the models' locks
    pipelines = plan_pipelines(workspace, catalog, workspace.pipeline_names())
    for pipeline in pipelines:
        for planned in pipeline.models:
            folder = workspace.models / planned.model.name
            found += _file_drift(workspace, folder, planned.texts)
    found += [
        f"{workspace.shown(folder)}: no pipeline makes it any more"
        for folder in orphans(workspace, pipelines)
    ]
    return found


def _model_drift(workspace: Workspace, catalog: Catalog) -> Iterator[str]:
    for name, model in catalog.models.items():
        lock_path = workspace.shown(workspace.models / name / LOCK)
        if name not in catalog.locks:
            yield f"{lock_path}: missing, the model was never exported"
            continue
        lock = catalog.locks[name]
        if build_key(workspace, model) != lock.build_key:
            yield f"{lock_path}: made from other sources or options than model.yaml names now"
            continue
        yield from _file_drift(workspace, workspace.models / name, configs_of(model, lock))


def _file_drift(workspace: Workspace, folder: Path, texts: Mapping[str, str]) -> Iterator[str]:
    for path, text in sorted(texts.items()):
        file = folder / path
        if not file.is_file():
            yield f"{workspace.shown(file)}: missing"
        elif file.read_text(errors="replace") != text:
            yield f"{workspace.shown(file)}: differs from what would be generated"
    for stray in sorted((folder / "configs").glob("*.pbtxt")):
        if f"configs/{stray.name}" not in texts:
            yield f"{workspace.shown(stray)}: would not be generated"
