"""Served trees that are to be alike: those of replicas that do not share one.

All is written to each in the order of the replicas, so the last one has what all have. Everything
may be done twice: what a deployment that was killed has done to some is planned again for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from mmctl.deploy.state import Files, HeldModel, TreeState
from mmctl.deploy.target import Tree

OWN = "mirrored:"
"""Begins the source of a version that each tree has by itself."""


@dataclass(frozen=True, slots=True)
class MirroredTree:
    """Two or more trees."""

    each: tuple[Tree, ...]

    @contextmanager
    def alone(self, on_wait: Callable[[], None]) -> Iterator[None]:
        with ExitStack() as stack:
            for tree in self.each:
                stack.enter_context(tree.alone(on_wait))
            yield

    def read(self) -> TreeState:
        """Models and their files as the last tree says that has them."""
        states = [tree.read() for tree in self.each]
        names = sorted({name for state in states for name in state.models})
        keys: dict[str, dict[int, str]] = {}
        for state in states:
            for name, known in state.keys.items():
                keys.setdefault(name, {}).update(known)
        none = HeldModel({})
        models = {name: _common([s.models.get(name, none) for s in states]) for name in names}
        return TreeState(models, keys, any(state.torn for state in states))

    def source_of(self, model: str, version: int) -> str:
        return OWN + json.dumps([model, version])

    def plan_of(self, model: str, version: int) -> bytes | None:
        return self.each[-1].plan_of(model, version)

    def copy(self, model: str, version: int, source: str) -> None:
        for tree in self.each:
            own = source
            if source.startswith(OWN):
                own = tree.source_of(*json.loads(source.removeprefix(OWN)))
            tree.copy(model, version, own)

    def drop(self, model: str, version: int) -> None:
        for tree in self.each:
            tree.drop(model, version)

    def forget(self, model: str, version: int) -> None:
        for tree in self.each:
            tree.forget(model, version)

    def write(self, model: str, files: Files) -> None:
        for tree in self.each:
            tree.write(model, files)

    def keep(self, model: str) -> None:
        for tree in self.each:
            tree.keep(model)

    def bring_back(self, model: str) -> None:
        for tree in self.each:
            tree.bring_back(model)

    def erase(self, model: str) -> None:
        for tree in self.each:
            tree.erase(model)

    def tear(self, told: str) -> None:
        for tree in self.each:
            tree.tear(told)

    def mend(self) -> None:
        for tree in self.each:
            tree.mend()

    def log(self, entry: Mapping[str, Any]) -> None:
        for tree in self.each:
            tree.log(entry)

    def ledger(self) -> Sequence[Mapping[str, Any]]:
        """The longest: a replica may have come later."""
        return max((tree.ledger() for tree in self.each), key=len)


def _common(models: Sequence[HeldModel]) -> HeldModel:
    """One model of all trees. A version that not every tree serves from counts as lying beside
    them: it is copied before it is served.
    """
    serving = next((model for model in reversed(models) if model.files), models[-1])
    versions = {}
    for version, held in (row for model in models for row in model.versions.items()):
        beside = any(version not in m.versions or m.versions[version].kept for m in models)
        versions[version] = replace(held, kept=beside)
    return HeldModel(versions, serving.files)
