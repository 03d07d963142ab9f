"""Which ensembles of a repository are adopted, callees first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mmctl.diagnostics import Severity, nearest
from mmctl.errors import InputError, InvalidFiles
from mmctl.files import read_text
from mmctl.lint.repository import Model, steps_of
from mmctl.pipeline.order import order_of
from mmctl.triton.repository import is_generated, read_marker
from mmctl.workspace import Workspace

KEPT = "adopted.pbtxt"
"""The original config, beside pipeline.yaml."""

Models = Mapping[str, Model]


def choose(shown: str, models: Models, names: Sequence[str]) -> list[str]:
    ensembles = {name: model for name, model in models.items() if model.is_ensemble}
    for name in names:
        _refuse_other(shown, name, models, ensembles)
    theirs = [name for name, model in ensembles.items() if not is_generated(model.path)]
    chosen = list(dict.fromkeys(names)) or theirs
    refuse_broken(*([models[name] for name in chosen] if ensembles else models.values()))
    if not ensembles:
        raise InputError(
            f"{shown}: no ensemble in it",
            hint="name a Triton model repository: the folder that has a folder for each model",
        )
    return chosen


def _refuse_other(shown: str, name: str, models: Models, ensembles: Models) -> None:
    if name not in models:
        known = nearest(name, ensembles or models)
        raise InputError(f"{shown}: there is no model `{name}`", hint=known)
    model = models[name]
    if name not in ensembles:
        refuse_broken(model)
        raise InputError(f"{model.shown}: is no ensemble", hint=nearest(name, ensembles))
    if (origin := read_marker(model.path)) is not None:
        raise InputError(
            f"{model.shown}: mmctl made it from {origin}, so there is nothing to adopt",
            hint=f"work on {origin}, in its workspace",
        )


def refuse_broken(*models: Model) -> None:
    """A config that is not what its author meant proves nothing."""
    findings = [finding for model in models for finding in model.findings]
    findings += [f for model in models if model.config for f in model.config.findings]
    if errors := [finding for finding in findings if finding.severity is Severity.ERROR]:
        raise InvalidFiles(errors)


def callees_first(names: Sequence[str], models: Models) -> list[str]:
    order = order_of({name: [n for n in called([name], models) if n in names] for name in names})
    if order.circles:
        circle = list(reversed(order.circles[0]))
        raise InputError(
            f"ensembles call each other in a circle: {' -> '.join(circle)}",
            hint="Triton refuses them as well",
        )
    return order.names


def content(model: Model) -> str:
    """The text of its config, as it was when the plan was made."""
    return model.config.text.content if model.config else ""


def called(names: Iterable[str], models: Models) -> list[str]:
    """Models that ensembles call, each once."""
    return list(dict.fromkeys(callee for name in names for callee in steps_of(models[name])))


def was_adopted(workspace: Workspace, model: Model) -> bool:
    """Whether the pipeline of that name came from this very config."""
    kept = workspace.pipelines / model.name / KEPT
    return kept.is_file() and read_text(kept) == content(model)


def unread_notes(shown: str, models: Models, chosen: Iterable[str]) -> Iterator[str]:
    """A config that cannot be read may be that of an ensemble."""
    for name, model in models.items():
        if name not in chosen and model.config is not None and model.config.broken:
            yield f"`{name}`: its config cannot be read; see `mmctl check {shown}/{name}`"
