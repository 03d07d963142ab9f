"""Which old versions a target needs no more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmctl.deploy.state import HeldModel, TreeState, calls_of

KEEP = 3


@dataclass(frozen=True, slots=True)
class Old:
    """A version that may go."""

    model: str
    version: int
    bytes: int


def plan_prune(tree: TreeState, keep: int = KEEP) -> tuple[Old, ...]:
    """All but the `keep` newest versions of each model, those that are live, and those that a
    version which stays calls: it could not be rolled back to without them.
    """
    stays = {name: _own(model, keep) for name, model in tree.models.items()}
    waiting = [(name, version) for name, versions in stays.items() for version in versions]
    while waiting:
        for callee, version in _calls(tree.models, *waiting.pop()):
            if callee in stays and version not in stays[callee]:
                stays[callee].add(version)
                waiting.append((callee, version))
    return tuple(
        Old(name, version, held.bytes)
        for name, model in sorted(tree.models.items())
        for version, held in sorted(model.versions.items())
        if version not in stays[name]
    )


def _own(model: HeldModel, keep: int) -> set[int]:
    return {*sorted(model.versions)[-keep:], *model.live}


def _calls(models: Mapping[str, HeldModel], name: str, version: int) -> list[tuple[str, int]]:
    model = models[name]
    if version not in model.versions:
        return []
    as_served = calls_of(model.files, model.live) if version in model.live else ()
    return [*model.versions[version].calls.items(), *as_served]
