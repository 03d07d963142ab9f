"""What to serve: from the workspace as it was built, or from what a target held before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmctl.building.build import closure, everything
from mmctl.building.catalog import foreign_calls, read_catalog
from mmctl.building.compiled import PlannedPipeline, plan_pipelines
from mmctl.building.merged import only_merged
from mmctl.building.served import extra_files
from mmctl.client.samples import Sample, read_samples
from mmctl.deploy.state import (
    PLAN,
    TreeState,
    Wanted,
    calls_of,
    config_of,
    is_config,
    with_digests,
    with_share,
)
from mmctl.deploy.target import Tree
from mmctl.deploy.tree import VERSION, read_held
from mmctl.diagnostics import Finding, Severity, nearest
from mmctl.errors import InputError, InvalidFiles, Refused
from mmctl.exporters.keys import build_key
from mmctl.lint.checker import check_repository
from mmctl.lint.repository import Target, read_repository
from mmctl.serving.servable import without_images
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.repository import CONFIG, NEXT, is_foreign, read_build_key, read_lock
from mmctl.workspace import Workspace

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Models callees first; golden requests by pipeline; what is doubtful about the models."""

    wanted: tuple[Wanted, ...]
    golden: Mapping[str, Sequence[Sample]]
    findings: tuple[Finding, ...] = ()


def gather(workspace: Workspace, names: Sequence[str], target: Target, say: Say) -> Gathered:
    """What was built of `names` (empty: of everything) and of all that they call, for `target`.

    Raises InputError when something is not built, or was changed since; InvalidFiles with what
    the rules find.
    """
    asked = closure(workspace, names or everything(workspace))
    catalog = read_catalog(workspace)
    for name in asked:
        if name in catalog.models:
            current = build_key(workspace, catalog.models[name])
            _refuse_unbuilt(workspace, name, current)
    planned = plan_pipelines(workspace, catalog, _pipelines(workspace, asked))
    for pipeline in planned:
        for model in pipeline.models:
            _refuse_unbuilt(workspace, model.model.name, model.lock.build_key)
    models = _models(workspace, asked, planned)
    needless = only_merged(workspace, planned) - set(names or everything(workspace))
    models = [name for name in models if name not in needless]
    served = without_images(workspace, models, names, say)
    golden = _golden(workspace, asked)
    called = {model.model.name: model.model.calls for p in planned for model in p.models}
    wanted = _read_all(workspace, served, golden, called)
    return Gathered(_callees_first(wanted), golden, _judge(workspace, served, target))


def _pipelines(workspace: Workspace, names: Iterable[str]) -> list[str]:
    known = set(workspace.pipeline_names())
    return [name for name in names if name in known]


def _models(
    workspace: Workspace, asked: Iterable[str], planned: Iterable[PlannedPipeline]
) -> list[str]:
    pipelines = set(workspace.pipeline_names())
    made = [name for name in asked if name not in pipelines]
    return [*made, *(model.model.name for p in planned for model in p.models)]


def _refuse_unbuilt(workspace: Workspace, name: str, key: str) -> None:
    folder = workspace.models / name
    lock = read_lock(folder)
    if lock is None or read_build_key(folder / str(lock.version)) != lock.build_key:
        raise InputError(f"`{name}` is not built", hint="run `mmctl build`")
    if lock.build_key != key:
        raise InputError(
            f"`{name}` has changed since it was built", hint="run `mmctl build`, then deploy again"
        )


def _golden(workspace: Workspace, names: Iterable[str]) -> dict[str, list[Sample]]:
    found = {
        name: read_samples(workspace.pipelines / name / "samples")
        for name in _pipelines(workspace, names)
    }
    return {name: [s for s in samples if s.expect] for name, samples in found.items()}


def _read_all(
    workspace: Workspace,
    names: Sequence[str],
    golden: Mapping[str, Sequence[Sample]],
    called: Mapping[str, Sequence[str]],
) -> dict[str, Wanted]:
    """`called` are the models that each generated one calls: its manifest leaves out the user's
    own, whose version nobody keeps.
    """
    versions = {name: _version(workspace, name) for name in names}
    found = {}
    for name in names:
        folder = workspace.models / name
        source = folder / str(versions[name])
        held = read_held(source)
        callees = called.get(name, ())
        if is_foreign(folder):
            callees = foreign_calls(workspace, name)
            held = replace(held, config=(folder / CONFIG).read_text(encoding="utf-8"))
        calls = {callee: versions[callee] for callee in callees if callee in versions}
        held = replace(held, calls={**calls, **held.calls})
        found[name] = Wanted(
            name,
            versions[name],
            held,
            _files(folder, versions[name]),
            str(source),
            pipeline=name in golden,
            samples=len(golden.get(name, ())),
        )
    return found


def _version(workspace: Workspace, name: str) -> int:
    """The locked one; of a folder of the user's own the greatest."""
    folder = workspace.models / name
    if (lock := read_lock(folder)) is not None and not is_foreign(folder):
        return lock.version
    numbers = [int(f.name) for f in folder.iterdir() if f.is_dir() and VERSION.fullmatch(f.name)]
    if not numbers:
        raise InputError(
            f"{workspace.shown(folder)}: has no version folder", hint=f"make {folder / '1'}"
        )
    return max(numbers)


def _files(folder: Path, version: int) -> dict[str, bytes]:
    text = (folder / CONFIG).read_text(encoding="utf-8")
    paths = [folder / CONFIG, *sorted((folder / "configs").glob("*.pbtxt"))]
    paths += extra_files(folder, parse_config(text, where=str(folder / CONFIG)))
    paths += [path for path in (folder / str(version) / PLAN,) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _judge(workspace: Workspace, names: Sequence[str], target: Target) -> tuple[Finding, ...]:
    """What is doubtful. Raises InvalidFiles with what is wrong."""
    shown = workspace.shown(workspace.models)
    repository, _ = read_repository(workspace.models, shown, target)
    findings = check_repository(repository, sorted(names))
    if wrong := [f for f in findings if f.severity is Severity.ERROR]:
        raise InvalidFiles(wrong)
    return tuple(f for f in findings if f.severity is Severity.WARNING)


def gather_back(tree: Tree, state: TreeState, versions: Mapping[str, int]) -> Gathered:
    """The models of `versions` as they were served then, and the versions that they call.

    Raises InputError for what the target never had, Refused for what it has no more.
    """
    found: dict[str, Wanted] = {}

    def visit(name: str, version: int, caller: str = "") -> None:
        model = state.models.get(name)
        if model is None:
            raise InputError(f"the target has no `{name}`", hint=nearest(name, state.models))
        if version not in model.versions:
            held = ", ".join(map(str, sorted(model.versions)))
            needs = f", which `{caller}` calls" if caller else ""
            raise Refused(
                f"`{name}`: the target has no version {version} any more{needs}",
                hint=f"take one whose models are still there; of `{name}` it has {held}",
            )
        if name in found and found[name].version != version:
            raise Refused(
                f"`{name}`: both {found[name].version} and {version} are called by what is rolled "
                "back",
                hint="roll back one pipeline at a time",
            )
        was = _as_it_was(tree, name, version, state)
        for callee, pin in was.held.calls.items():
            visit(callee, pin, name)
        found[name] = was

    for name, version in versions.items():
        visit(name, version)
    return Gathered(_callees_first(found), {})


def gather_candidate(tree: Tree, state: TreeState, name: str) -> Gathered:
    """The candidate of a model, and those that stand in for what it calls, as they are served."""
    found: dict[str, Wanted] = {}

    def visit(candidate: str) -> None:
        model = state.models[candidate]
        version = max(model.live)
        calls = dict(calls_of(model.files, model.live))
        for callee in calls:
            if callee.endswith(NEXT) and callee in state.models:
                visit(callee)
        pins = {callee.removesuffix(NEXT): pin for callee, pin in calls.items()}
        held = replace(model.versions[version], calls=pins)
        files = with_digests(with_share(model.files, None), {})
        source = tree.source_of(candidate, version)
        own = candidate.removesuffix(NEXT)
        found[own] = Wanted(own, version, held, files, source)

    visit(name + NEXT)
    return Gathered(_callees_first(found), {})


def _as_it_was(tree: Tree, name: str, version: int, state: TreeState) -> Wanted:
    model = state.models[name]
    held = model.versions[version]
    files = {path: text for path, text in model.files.items() if _is_setting(path)}
    files = with_digests(files, {})
    if held.config:
        files[CONFIG] = held.config.encode()
    if plan := tree.plan_of(name, version):
        files[f"{version}/{PLAN}"] = plan
    if CONFIG not in files:
        raise Refused(
            f"`{name}`: nothing says how version {version} was served",
            hint="deploy it from the workspace again",
        )
    now = {n: max(m.live) for n, m in state.models.items() if m.live}
    own = {step.model: now[step.model] for step in config_of(files).steps if step.model in now}
    held = replace(held, calls={**own, **held.calls})
    return Wanted(name, version, held, files, tree.source_of(name, version))


def _is_setting(path: str) -> bool:
    return is_config(path) or not VERSION.fullmatch(path.split("/", 1)[0])


def _callees_first(wanted: Mapping[str, Wanted]) -> tuple[Wanted, ...]:
    found: dict[str, Wanted] = {}

    def visit(name: str) -> None:
        if name in wanted and name not in found:
            for callee in sorted(wanted[name].held.calls):
                visit(callee)
            found[name] = wanted[name]

    for name in wanted:
        visit(name)
    return tuple(found.values())
