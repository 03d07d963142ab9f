"""Pipelines -> what their generated folders must hold. Reads sources and locks, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mmctl.building.catalog import Catalog
from mmctl.compiler import Compiled, compile_pipeline
from mmctl.diagnostics import Finding, Severity
from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters.packages import package_pin
from mmctl.files import digest_of
from mmctl.pipeline import PipelineSource, check_pipeline, order_pipelines, read_pipeline
from mmctl.triton.pbtxt import render_config
from mmctl.triton.repository import (
    LOCK,
    MARKER,
    GeneratedModel,
    Lock,
    history_with,
    read_lock,
    render_lock,
    render_marker,
    version_for,
)
from mmctl.workspace import Workspace


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A generated folder: its lock, and the text of every committed file by path inside it."""

    model: GeneratedModel
    lock: Lock
    texts: Mapping[str, str]
    calls: Mapping[str, int]
    """Version of each called model."""


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """What one pipeline becomes: step models first, the pipeline's own model last."""

    source: PipelineSource
    compiled: Compiled
    models: tuple[PlannedModel, ...]
    warnings: tuple[Finding, ...] = ()


def plan_pipelines(
    workspace: Workspace, catalog: Catalog, names: Iterable[str]
) -> tuple[PlannedPipeline, ...]:
    """Pipelines `names` and those they call, callees first.

    Raises InvalidFiles with the findings of all of them at once.
    """
    sources = _read_sources(workspace, names)
    _refuse_unexported(catalog, sources.values())
    signatures = dict(catalog.signatures)
    locks = dict(catalog.locks)
    findings: list[Finding] = []
    planned = []
    for name in order_pipelines(sources.values()):
        if any(callee not in signatures for callee in sources[name].pipelines_called(sources)):
            continue  # a callee has findings of its own: those come first
        checked = check_pipeline(sources[name], signatures)
        findings += checked.findings
        if checked.graph is None:
            continue
        compiled = compile_pipeline(checked.graph, sources[name])
        warnings = tuple(f for f in checked.findings if f.severity is not Severity.ERROR)
        models = _plan_models(workspace, compiled, locks)
        planned.append(PlannedPipeline(sources[name], compiled, models, warnings))
        signatures[name] = compiled.signature
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise InvalidFiles(findings)
    return tuple(planned)


def _refuse_unexported(catalog: Catalog, sources: Iterable[PipelineSource]) -> None:
    """A model without a lock has no signature yet: nothing that calls it can be checked."""
    called = {name for source in sources for name in source.called_names()}
    if missing := sorted(called & set(catalog.models) - set(catalog.locks)):
        names = ", ".join(f"`{name}`" for name in missing)
        raise InputError(
            f"{names}: never exported, so there is no signature to check against",
            hint=f"run `mmctl export {' '.join(missing)}`, or `mmctl build` for everything",
        )


def _read_sources(workspace: Workspace, names: Iterable[str]) -> dict[str, PipelineSource]:
    known = set(workspace.pipeline_names())
    sources: dict[str, PipelineSource] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = read_pipeline(workspace, name)
            waiting += sorted(sources[name].called_names() & known)
    return sources


def _plan_models(
    workspace: Workspace, compiled: Compiled, locks: dict[str, Lock]
) -> tuple[PlannedModel, ...]:
    """Gives each generated model its build key and version; notes its lock for its callers."""
    planned = []
    for model in compiled.models:
        before = read_lock(workspace.models / model.name)
        lock = _lock_for(workspace, model, before, locks)
        calls = {name: locks[name].version for name in model.calls if name in locks}
        locks[model.name] = lock
        texts = {path: render_config(config) for path, config in model.configs.items()}
        texts[LOCK] = render_lock(lock)
        texts[MARKER] = render_marker(model.origin)
        planned.append(PlannedModel(model, lock, texts, calls))
    return tuple(planned)


def _lock_for(
    workspace: Workspace, model: GeneratedModel, before: Lock | None, locks: Mapping[str, Lock]
) -> Lock:
    key = digest_of(
        {
            "own": model.own_key,
            "calls": {name: _key_of(name, locks) for name in model.calls},
            "resources": {
                path: package_pin(workspace, resource.address)
                for path, resource in model.resources.items()
            },
        }
    )
    version = version_for(before, key)
    return Lock(
        version=version,
        build_key=key,
        signature=model.lock_signature,
        files=model.file_digests,
        history=history_with(before, version, key),
    )


def _key_of(name: str, locks: Mapping[str, Lock]) -> str:
    """A foreign model has no lock: its name is all that mmctl can hold it to."""
    return locks[name].build_key if name in locks else f"foreign:{name}"
