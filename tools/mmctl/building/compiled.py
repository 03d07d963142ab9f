"""Pipelines -> what their generated folders must hold. Reads sources and locks, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mmctl.building.catalog import Catalog, foreign_calls
from mmctl.compiler import Compiled, compile_pipeline
from mmctl.diagnostics import Finding, Severity
from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters.merge import made_with
from mmctl.exporters.packages import package_pin
from mmctl.files import digest_of
from mmctl.pipeline import Graph, PipelineSource, check_pipeline, order_pipelines, read_pipeline
from mmctl.pipeline.caching import UNKNOWN_CONTENT, doubt_of
from mmctl.pipeline.findings import NOT_EXPORTED
from mmctl.triton.pbtxt import render_config
from mmctl.triton.releases import Release, parse_release
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

    @property
    def is_proven(self) -> bool:
        """False for a merged model that was not built of what its members are now."""
        return self.model.merge is None or bool(self.lock.evidence)


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """What one pipeline becomes: step models first, the pipeline's own model last."""

    source: PipelineSource
    graph: Graph
    """As it was checked, before nodes became one."""
    compiled: Compiled
    models: tuple[PlannedModel, ...]
    warnings: tuple[Finding, ...] = ()


def plan_pipelines(
    workspace: Workspace, catalog: Catalog, names: Iterable[str]
) -> tuple[PlannedPipeline, ...]:
    """Pipelines `names` and those they call, callees first.

    Raises InvalidFiles with the findings of all of them at once, InputError when one calls a
    model that was never exported.
    """
    foreign = {name: foreign_calls(workspace, name) for name in catalog.foreign}
    sources = _read_sources(workspace, names, foreign)
    _refuse_unexported(catalog, sources.values())
    planned, findings = _plan(workspace, catalog, sources, foreign)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise InvalidFiles(findings)
    return planned


def find_mistakes(
    workspace: Workspace, catalog: Catalog, names: Iterable[str]
) -> tuple[Finding, ...]:
    """All that is wrong with pipelines `names` and those they call.

    A pipeline that calls a model without a lock is not judged, which is a finding as well.
    """
    foreign = {name: foreign_calls(workspace, name) for name in catalog.foreign}
    sources = _read_sources(workspace, names, foreign)
    unknown = [finding for s in sources.values() for finding in _unexported_calls(catalog, s)]
    open_names = {finding.path for finding in unknown}
    known = {name: s for name, s in sources.items() if s.document.path not in open_names}
    planned, findings = _plan(workspace, catalog, known, foreign)
    warnings = [finding for pipeline in planned for finding in pipeline.warnings]
    return tuple(dict.fromkeys([*unknown, *findings, *warnings]))


def _plan(
    workspace: Workspace,
    catalog: Catalog,
    sources: Mapping[str, PipelineSource],
    foreign: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[PlannedPipeline, ...], list[Finding]]:
    """What can be planned, callees first, and everything that was found."""
    signatures = dict(catalog.signatures)
    locks = dict(catalog.locks)
    doubts = dict.fromkeys(foreign, UNKNOWN_CONTENT)
    pipelines = set(workspace.pipeline_names())
    findings: list[Finding] = []
    release = oldest_release(workspace)
    planned = []
    for name in order_pipelines(sources.values(), foreign):
        if any(callee not in signatures for callee in sources[name].called_names() & pipelines):
            continue  # a callee has findings of its own: those come first
        checked = check_pipeline(sources[name], signatures, catalog.instances, doubts)
        findings += checked.findings
        if checked.graph is None:
            continue
        try:
            compiled = compile_pipeline(checked.graph, sources[name], release, catalog.onnx)
        except InvalidFiles as error:
            findings += error.findings
            continue
        warnings = tuple(f for f in checked.findings if f.severity is not Severity.ERROR)
        warnings += compiled.warnings
        models = _plan_models(workspace, compiled, locks)
        planned.append(PlannedPipeline(sources[name], checked.graph, compiled, models, warnings))
        signatures[name] = compiled.signature
        if doubt := doubt_of(compiled.graph, doubts):
            doubts[name] = doubt
    return tuple(planned), findings


def oldest_release(workspace: Workspace) -> Release:
    """Of the Tritons that the workspace names: one repository serves all of them."""
    stated = [t.release for t in workspace.targets.values() if t.release]
    names = [workspace.defaults.release, *stated]
    return min(parse_release(name) for name in names)


def _refuse_unexported(catalog: Catalog, sources: Iterable[PipelineSource]) -> None:
    """A model without a lock has no signature yet: nothing that calls it can be checked."""
    called = {name for source in sources for name in source.called_names()}
    if missing := sorted(called & _unexported(catalog)):
        names = ", ".join(f"`{name}`" for name in missing)
        raise InputError(
            f"{names}: never exported, so there is no signature to check against",
            hint=f"run `mmctl export {' '.join(missing)}`, or `mmctl build` for everything",
        )


def _unexported_calls(catalog: Catalog, source: PipelineSource) -> Iterator[Finding]:
    for name, node in source.calls().items():
        if name in _unexported(catalog):
            yield Finding.at(
                source.document.at("nodes", node, "model"),
                NOT_EXPORTED,
                f"`{name}` was never exported, so this pipeline cannot be checked",
                f"run `mmctl export {name}`",
                Severity.WARNING,
            )


def _unexported(catalog: Catalog) -> set[str]:
    return set(catalog.models) - set(catalog.locks)


def _read_sources(
    workspace: Workspace, names: Iterable[str], foreign: Mapping[str, tuple[str, ...]]
) -> dict[str, PipelineSource]:
    """Pipelines `names` and all that they call, also through ensembles of the user's."""
    known = {*workspace.pipeline_names(), *foreign}
    sources: dict[str, PipelineSource] = {}
    calls = dict(foreign)
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in sources and name not in foreign:
            sources[name] = read_pipeline(workspace, name)
            calls[name] = tuple(sources[name].called_names())
        waiting += sorted({*calls.pop(name, ())} & known)
    return sources


def _plan_models(
    workspace: Workspace, compiled: Compiled, locks: dict[str, Lock]
) -> tuple[PlannedModel, ...]:
    """Gives each generated model its build key and version; notes its lock for its callers."""
    planned = []
    for unpinned in compiled.models:
        before = read_lock(workspace.models / unpinned.name)
        called = {name: locks[name] for name in unpinned.calls if name in locks}
        calls = {name: lock.version for name, lock in called.items()}
        model = unpinned.pinned(calls, {name: lock.build_key for name, lock in called.items()})
        lock = _lock_for(workspace, model, before, locks)
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
            **_merged(model, locks),
        }
    )
    version = version_for(before, key)
    made = before if model.merge and before and before.build_key == key else None
    return Lock(
        version=version,
        build_key=key,
        signature=model.lock_signature,
        files=made.files if made else model.file_digests,
        evidence=made.evidence if made else (),
        history=history_with(before, version, key),
    )


def _merged(model: GeneratedModel, locks: Mapping[str, Lock]) -> dict[str, object]:
    """The part of the build key that a merged model has: it holds what its members are."""
    if model.merge is None:
        return {}
    members = {m.name: _key_of(m.model, locks) for m in model.merge.members}
    return {"members": members, "made_with": made_with()}


def _key_of(name: str, locks: Mapping[str, Lock]) -> str:
    """A foreign model has no lock: its name is all that mmctl can hold it to."""
    return locks[name].build_key if name in locks else f"foreign:{name}"
