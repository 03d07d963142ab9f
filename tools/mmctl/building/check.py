"""`mmctl check`: whatever a path names, judged by the one table of rules. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmctl.building.catalog import read_catalog
from mmctl.building.compiled import find_mistakes, oldest_release
from mmctl.cache.settings import settings_of
from mmctl.diagnostics import Finding, Severity, in_order, nearest
from mmctl.documents import read_document
from mmctl.errors import InputError, InvalidFiles
from mmctl.lint.checker import check_repository
from mmctl.lint.repository import (
    SOURCE,
    Repository,
    Target,
    read_config,
    read_model,
    read_repository,
)
from mmctl.triton.releases import parse_release, parse_version
from mmctl.triton.repository import CONFIG
from mmctl.workspace import FILE, Workspace, find_workspace, read_workspace

PIPELINE = "pipeline.yaml"

OTHER_KINDS = (".json", ".lock", ".md", ".onnx", ".plan", ".pt", ".py", ".toml", ".yaml", ".yml")
"""How the names of files end that are surely no config by another name."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """What one path stands for: models of a repository, and pipelines of a workspace.

    `models` and `pipelines` are those to judge; those around them are only read.
    """

    repository: Repository
    models: tuple[str, ...] = ()
    workspace: Workspace | None = None
    pipelines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What is known already: files that could not be read."""

    @property
    def root(self) -> Path | None:
        """The folder of the repository, None where there are no models to run."""
        return self.repository.models[self.models[0]].path.parent if self.models else None


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of all subjects in order of place, and how much was looked at."""

    findings: tuple[Finding, ...]
    subjects: tuple[Subject, ...] = ()

    @property
    def models(self) -> int:
        return sum(len(subject.models) for subject in self.subjects)

    @property
    def pipelines(self) -> int:
        return sum(len(subject.pipelines) for subject in self.subjects)


def check(
    *paths: str | Path,
    target: Target | None = None,
    values: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Everything wrong with repositories, model folders, config.pbtxt files or pipelines.

    Without a path: the workspace around the current folder. Raises InputError for a path that
    does not exist or is none of these.
    """
    target = target or Target()
    if not paths:
        return check_workspace(find_workspace(Path.cwd()), target, values).findings
    return check_paths([Path(path) for path in paths], target, values or {}).findings


def check_paths(paths: Sequence[Path], target: Target, values: Mapping[str, str]) -> Checked:
    """Each path in turn; the same finding is told once. Raises InputError."""
    return _checked(_distinct(read_subject(path, target, values) for path in paths))


def check_workspace(
    workspace: Workspace, target: Target, values: Mapping[str, str] | None = None
) -> Checked:
    """All models and pipelines of a workspace."""
    return _checked([_workspace_subject(workspace, target, values or {})])


def refuse_mistakes(workspace: Workspace, models: Iterable[str], say: Say) -> None:
    """Raises InvalidFiles when one of these models cannot be served; says what is doubtful."""
    names = sorted(models)
    if not names:
        return
    target = Target(release=oldest_release(workspace))
    repository, _ = read_repository(workspace.models, workspace.shown(workspace.models), target)
    findings = check_repository(repository, names)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise InvalidFiles([f for f in findings if f.severity is Severity.ERROR])
    for finding in findings:
        if finding.severity is Severity.WARNING:
            say(finding.text())


def target_of(workspace: Workspace, name: str) -> Target:
    """A target of mmctl.yaml as the rules see it. Raises InputError when it is not there."""
    known = workspace.target(name)
    return Target(
        release=parse_release(workspace.release_of(name)),
        gpus=known.gpus,
        name=name,
        tensorrt=parse_version(known.tensorrt) if known.tensorrt else None,
    )


def read_subject(path: Path, target: Target, values: Mapping[str, str]) -> Subject:
    """Raises InputError for what is neither repository, model, config nor pipeline."""
    try:
        there = path.exists()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not there:
        raise InputError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return _folder_subject(path, target, values)
    if path.name == PIPELINE:
        return _pipeline_subject(path, target)
    if path.name in (CONFIG, SOURCE):
        return _model_subject(path.parent, target, values)
    if path.name == FILE:
        return _folder_subject(path.parent, target, values)
    if path.suffix in OTHER_KINDS:
        raise InputError(
            f"{path}: neither a {CONFIG} nor a {PIPELINE}",
            hint="name a repository or a model's folder: what belongs to it is read too",
        )
    return _config_subject(path, target, values)


def _distinct(subjects: Iterable[Subject]) -> Iterator[Subject]:
    """Each with what no earlier one has: who names a model twice wants it judged once."""
    models: set[Path] = set()
    pipelines: set[Path] = set()
    for subject in subjects:
        places = {n: subject.repository.models[n].path.resolve() for n in subject.models}
        root = subject.workspace.pipelines if subject.workspace else Path()
        yield replace(
            subject,
            models=tuple(n for n in subject.models if places[n] not in models),
            pipelines=tuple(n for n in subject.pipelines if root / n not in pipelines),
        )
        models |= set(places.values())
        pipelines |= {root / n for n in subject.pipelines}


def _folder_subject(path: Path, target: Target, values: Mapping[str, str]) -> Subject:
    if os.path.isfile(path / FILE):
        return _workspace_subject(read_workspace(path.resolve()), target, values)
    if os.path.isfile(path / PIPELINE):
        return _pipeline_subject(path / PIPELINE, target)
    if _is_of_pipelines(path):
        workspace = read_workspace(path.resolve().parent)
        names = tuple(workspace.pipeline_names())
        return Subject(Repository({}, target), workspace=workspace, pipelines=names)
    if _is_model(path):
        return _model_subject(path, target, values)
    repository, findings = read_repository(path, path.as_posix(), target, values)
    if not repository.models and not findings:
        raise InputError(
            f"{path}: no models in it",
            hint="name a model repository: a folder with one folder for each model",
        )
    return Subject(repository, tuple(repository.models), findings=findings)


def _is_of_pipelines(path: Path) -> bool:
    """Whether it is the folder that holds the pipelines of a workspace."""
    return (path.resolve().parent / FILE).is_file() and any(path.glob(f"*/{PIPELINE}"))


def _is_model(path: Path) -> bool:
    """Whether the folder is a model: it has a config.pbtxt, or only versions to go by."""
    model = read_model(path, path.as_posix(), Target())
    return model.config is not None or bool(model.versions)


def _model_subject(path: Path, target: Target, values: Mapping[str, str]) -> Subject:
    """One model, read with its siblings: an ensemble is judged by what it calls."""
    folder = path.resolve()
    shown = path.parent.as_posix() if path.name == folder.name else folder.parent.as_posix()
    repository, _ = read_repository(folder.parent, shown, target, values)
    return Subject(repository, (folder.name,) if folder.name in repository.models else ())


def _config_subject(path: Path, target: Target, values: Mapping[str, str]) -> Subject:
    """A config by another name: only what its text says can be judged."""
    config = read_config(path, path.as_posix(), target, values)
    return Subject(Repository({}, target), findings=config.findings)


def _pipeline_subject(path: Path, target: Target) -> Subject:
    workspace = find_workspace(path.parent)
    folder = path.parent.resolve()
    if folder.parent != workspace.pipelines.resolve():
        raise InputError(
            f"{path}: not in {workspace.shown(workspace.pipelines)} of its workspace",
            hint="a pipeline lives in ensembles/NAME/pipeline.yaml",
        )
    return Subject(Repository({}, target), workspace=workspace, pipelines=(folder.name,))


def _workspace_subject(workspace: Workspace, target: Target, values: Mapping[str, str]) -> Subject:
    pipelines, found = tuple(workspace.pipeline_names()), _find_in_settings(workspace)
    if not workspace.models.is_dir():
        return Subject(Repository({}, target), (), workspace, pipelines, found)
    shown = workspace.shown(workspace.models)
    repository, findings = read_repository(workspace.models, shown, target, values)
    return Subject(repository, tuple(repository.models), workspace, pipelines, (*found, *findings))


def _find_in_settings(workspace: Workspace) -> tuple[Finding, ...]:
    """In what mmctl.yaml says of caches. Without the rest of it there is no workspace at all."""
    document = read_document(workspace.root / FILE, shown=FILE)
    try:
        settings = settings_of(document)
    except InvalidFiles as error:
        return error.findings
    known = {*workspace.model_names(), *workspace.pipeline_names()}
    return tuple(
        Finding.at(
            document.at_key("cache", "models", name),
            "Y006",
            f"`{name}` is neither a model nor a pipeline of this workspace",
            nearest(name, known),
            Severity.WARNING,
        )
        for name in settings.models
        if name not in known
    )


def _checked(subjects: Iterable[Subject]) -> Checked:
    subjects = tuple(subjects)
    return Checked(in_order(f for subject in subjects for f in _judge(subject)), subjects)


def _judge(subject: Subject) -> Iterable[Finding]:
    yield from subject.findings
    yield from check_repository(subject.repository, subject.models)
    if subject.workspace is not None and subject.pipelines:
        yield from _judge_pipelines(subject.workspace, subject.pipelines)


def _judge_pipelines(workspace: Workspace, names: Sequence[str]) -> tuple[Finding, ...]:
    try:
        return find_mistakes(workspace, read_catalog(workspace), names)
    except InvalidFiles as error:
        return error.findings
