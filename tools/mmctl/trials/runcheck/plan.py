"""What of a repository is run, and in which order. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from mmctl.lint.repository import Model, Repository, steps_of


@dataclass(frozen=True, slots=True)
class Plan:
    """`order` are the models to load, called ones first; `asked` those that are then asked.

    `calls` are all models that one calls, directly or not, as far as it can be read. `left_out` are
    models that cannot run here, each with the reason. `complete` says that Triton must complete
    configs, which makes every Python model ten times slower to load.
    """

    order: tuple[str, ...]
    asked: tuple[str, ...]
    calls: Mapping[str, frozenset[str]]
    left_out: Mapping[str, str]
    complete: bool


def plan_run(
    repository: Repository,
    code: Mapping[str, str],
    backends: Collection[str],
    names: Sequence[str] = (),
) -> Plan:
    """`code` is the text of what models run, `backends` are those of the server, `names` what is
    asked (all by default).
    """
    models = {name: m for name, m in repository.models.items() if m.config or m.versions}
    calls = {name: _calls(model, code.get(name, ""), models) for name, model in models.items()}
    order = _in_order(calls, names or models)
    left_out: dict[str, str] = {}
    for name in order:
        reason = _reason(models[name], backends)
        outside = [step for step in steps_of(models[name]) if step in left_out]
        if reason or outside:
            left_out[name] = reason or f"its step `{outside[0]}` is not run"
    asked = names or order
    run = tuple(name for name in order if name not in left_out)
    return Plan(
        order=run,
        asked=tuple(name for name in run if name in asked),
        calls={name: _closure(calls, name) for name in run},
        left_out=left_out,
        complete=any(_incomplete(models[name], code.get(name, "")) for name in run),
    )


def _calls(model: Model, code: str, models: Mapping[str, Model]) -> tuple[str, ...]:
    """Its steps, and the models whose names stand in its code: it may call them."""
    words = set(re.findall(r"""["']([^"'\n]+)["']""", code))
    mentioned = [name for name in models if name in words and name != model.name]
    return tuple(dict.fromkeys([*(s for s in steps_of(model) if s in models), *mentioned]))


def _in_order(calls: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> tuple[str, ...]:
    """Called ones first; models that call each other in a circle come in any order."""
    found: dict[str, None] = {}
    begun: set[str] = set()
    for start in sorted(names):
        path = [start]
        while path:
            name = path[-1]
            begun.add(name)
            ahead = [called for called in calls[name] if called not in begun]
            if ahead:
                path.append(ahead[0])
            else:
                found.setdefault(path.pop())
    return tuple(found)


def _closure(calls: Mapping[str, tuple[str, ...]], name: str) -> frozenset[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        new = [called for called in calls[ahead.pop()] if called not in found]
        found |= set(new)
        ahead += new
    return frozenset(found - {name})


def _reason(model: Model, backends: Collection[str]) -> str:
    if quote(model.name, safe="") != model.name:
        return "its name cannot stand in an address, as Triton's load API needs"
    backend = model.backend
    if not backend or backend == "ensemble" or backend in backends:
        return ""
    return f"its backend `{backend}` is not on the embedded server"


def _incomplete(model: Model, code: str) -> bool:
    """Whether Triton would add to the config. A text that it cannot read it does not complete."""
    if not model.readable or model.is_ensemble:
        return False
    tensors = [*model.message.input, *model.message.output]
    known = all(tensor.data_type and tensor.dims for tensor in tensors)
    both = model.message.input and model.message.output
    return not (known and both) or "auto_complete_config" in code
