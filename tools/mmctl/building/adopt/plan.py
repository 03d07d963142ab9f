"""What adopting would write. Reads the repository and proves; writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmctl.building.adopt.called import FolderCopy, code_notes, find_copies
from mmctl.building.adopt.chosen import (
    Models,
    called,
    callees_first,
    choose,
    content,
    refuse_broken,
    unread_notes,
    was_adopted,
)
from mmctl.building.compiled import oldest_release
from mmctl.compiler.adopt import LEAVE, Adopted, Callee, Difference, Original, adopt_ensemble
from mmctl.diagnostics import Position
from mmctl.errors import InputError
from mmctl.lint.repository import Model, Target, read_repository
from mmctl.tensors import Signature
from mmctl.triton.pbtxt import parse_config, signature_of
from mmctl.triton.repository import CONFIG
from mmctl.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Adoption:
    """One ensemble and the pipeline that it becomes, or the differences that forbid it."""

    model: Model
    adopted: Adopted
    differences: tuple[Difference, ...]

    @property
    def name(self) -> str:
        return self.model.name


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written; nothing, as long as one of `adoptions` (callees first) is refused.

    `own`: the repository is the workspace's, so compiled folders take the place of the originals.
    `already` were adopted before.
    """

    shown: str
    own: bool
    adoptions: tuple[Adoption, ...]
    copies: tuple[FolderCopy, ...]
    already: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def refused(self) -> tuple[Adoption, ...]:
        return tuple(adoption for adoption in self.adoptions if adoption.differences)


def plan_adoption(workspace: Workspace, repository: Path, names: Sequence[str]) -> Plan:
    """Read `repository`, write nothing. `names`: these ensembles only; empty means all.

    Raises InputError when the repository has no such ensembles, when a config cannot be read, and
    where something of the same name is in the way.
    """
    if not repository.is_dir():
        raise InputError(f"{repository}: no such folder", hint="name a Triton model repository")
    own = workspace.models.is_dir() and repository.samefile(workspace.models)
    shown = workspace.shown(workspace.models) if own else str(repository)
    models = read_repository(repository, shown, Target())[0].models
    chosen = choose(shown, models, names)
    already = tuple(name for name in chosen if was_adopted(workspace, models[name]))
    wanted = callees_first([name for name in chosen if name not in already], models)
    _refuse_collisions(workspace, wanted, own=own)
    callees = {name: _callee(name, models, shown) for name in called(wanted, models)}
    release = oldest_release(workspace)
    adoptions = []
    for name in wanted:
        adopted = adopt_ensemble(_original(models[name]), callees, release)
        _refuse_taken(workspace, adopted)
        left_out = _left_out(models[name], own=own)
        adoptions.append(Adoption(models[name], adopted, (*adopted.differences, *left_out)))
    copies = () if own else tuple(find_copies(workspace, models, wanted))
    notes = [] if names else list(unread_notes(shown, models, chosen))
    notes += _version_notes(models, wanted)
    notes += code_notes(copies)
    return Plan(shown, own, tuple(adoptions), copies, already, tuple(notes))


def _refuse_collisions(workspace: Workspace, names: Iterable[str], *, own: bool) -> None:
    """Pipelines and models share one name space; nothing is overwritten."""
    for name in names:
        rooms = [workspace.pipelines] if own else [workspace.pipelines, workspace.models]
        for folder in (room / name for room in rooms):
            if folder.exists():
                raise InputError(
                    f"{workspace.shown(folder)}: is there already, so `{name}` is not adopted",
                    hint="move it away, or name the ensembles that you want",
                )


def _refuse_taken(workspace: Workspace, adopted: Adopted) -> None:
    for copied in adopted.copies:
        folder = workspace.models / copied
        if folder.exists():
            raise InputError(
                f"{workspace.shown(folder)}: is there already, and `{adopted.name}` needs a step "
                "of that name",
                hint="move it away",
            )


def _original(model: Model) -> Original:
    assert model.config is not None
    config = parse_config(content(model), where=model.config.shown)
    return Original(model.name, model.config, config)


def _callee(name: str, models: Models, shown: str) -> Callee:
    if name not in models:
        return Callee(Signature((), ()), f"{shown}/{name}", exists=False)
    refuse_broken(models[name])
    place = f"{models[name].shown}/{CONFIG}"
    config = parse_config(content(models[name]), where=place)
    return Callee(signature_of(config), place, _is_decoupled(name, models, set()))


def _is_decoupled(name: str, models: Models, seen: set[str]) -> bool:
    """An ensemble is when a model that it calls is; its own config does not say so."""
    if name not in models or name in seen:
        return False
    seen.add(name)
    if models[name].message.model_transaction_policy.decoupled:
        return True
    return any(_is_decoupled(callee, models, seen) for callee in called([name], models))


def _left_out(model: Model, *, own: bool) -> Iterator[Difference]:
    """Files of the ensemble's folder that a pipeline has no place for."""
    for name in sorted(model.entries):
        place = Position(f"{model.shown}/{name}")
        if name == "configs" and any(_names_in(model.path / name)):
            message = "other configs of the ensemble: a pipeline has one"
            yield Difference(place, name, message, f"remove the folder, or {LEAVE}")
        elif own and not _is_placeholder(model, name):
            message = "would go: the folder of a pipeline is generated"
            yield Difference(place, name, message, "move it away first")


def _is_placeholder(model: Model, name: str) -> bool:
    """The config, and what stands in a version folder so that version control keeps that."""
    if name in (CONFIG, "configs") or name.startswith("."):
        return True
    if not (model.entries[name] and name.isdigit()):
        return False
    files = [model.path / name / file for file in _names_in(model.path / name)]
    return all(f.is_file() and (f.name.startswith(".") or not f.stat().st_size) for f in files)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error


def _version_notes(models: Models, adopted: Iterable[str]) -> Iterator[str]:
    for name in adopted:
        latest = max(models[name].versions, default=1)
        if latest != 1:
            yield (
                f"`{name}` starts again at version 1: a client that asks for version {latest} by "
                "its number gets an error"
            )
