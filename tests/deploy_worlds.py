"""A target in memory, and models to deploy to it: what tests of deployments share.

The server keeps Triton's rules: it serves what the tree asked for at the last load; an ensemble
whose callee is gone goes too, while the load says yes; what is not asked for is unloaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mmctl.client.samples import Sample
from mmctl.client.status import Counts, IndexEntry
from mmctl.deploy.ledger import keys_of
from mmctl.deploy.state import Files, Held, HeldModel, TreeState, Wanted, calls_of, config_of
from mmctl.errors import InferenceError, WorldError
from mmctl.files import render_json
from mmctl.tensors import Array

IO = """
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
"""


def leaf(outputs: str = "") -> str:
    return f'backend: "python"\nmax_batch_size: 4\n{IO}{outputs}'


def ensemble(*callees: str) -> str:
    steps = "".join(
        f'step {{ model_name: "{name}" model_version: -1 '
        f'input_map {{ key: "x" value: "t{i}" }} output_map {{ key: "y" value: "t{i + 1}" }} }}'
        for i, name in enumerate(callees)
    )
    return f'platform: "ensemble"\nmax_batch_size: 4\n{IO}ensemble_scheduling {{ {steps} }}'


def wanted(
    name: str,
    version: int,
    config: str,
    calls: Mapping[str, int] | None = None,
    *,
    key: str = "",
    samples: int = 0,
    pipeline: bool = False,
    runner: bool = False,
    size: int = 100,
    plan: bool = False,
) -> Wanted:
    """A model as the workspace has it; with `plan` a pipeline in the bls form."""
    files = {"config.pbtxt": f'name: "{name}"\n{config}'.encode()}
    if plan:
        nodes = [{"name": callee, "model": callee} for callee in calls or {}]
        text = render_json({"schema": 1, "nodes": nodes, "pins": dict(calls or {})})
        files[f"{version}/plan.json"] = text.encode()
    held = Held(
        key or f"{name}-{version}", size, files["config.pbtxt"].decode(), calls or {}, runner
    )
    return Wanted(name, version, held, files, f"/src/{name}/{version}", pipeline, samples)


@dataclass
class MemoryTree:
    """A served tree in memory. `source` says what a version folder holds."""

    models: dict[str, HeldModel] = field(default_factory=dict)
    lines: list[Mapping[str, Any]] = field(default_factory=list)
    torn: bool = False
    kept: dict[tuple[str, int], Held] = field(default_factory=dict)
    sources: dict[str, Wanted] = field(default_factory=dict)

    def read(self) -> TreeState:
        return TreeState(dict(self.models), keys_of(self.lines), self.torn)

    def copy(self, model: str, version: int, source: str) -> None:
        there = self.models.get(model, HeldModel({}))
        origin = self.sources[source]
        held = replace(origin.held, kept=False)
        files = dict(there.files)
        if (plan := f"{version}/plan.json") in origin.files and files:
            files[plan] = origin.files[plan]
        self.models[model] = HeldModel({**there.versions, version: held}, files)

    def drop(self, model: str, version: int) -> None:
        there = self.models.get(model)
        if there is None:
            return
        versions = {v: held for v, held in there.versions.items() if v != version}
        if (model, version) in self.kept:
            versions[version] = self.kept[model, version]
        files = {p: t for p, t in there.files.items() if not p.startswith(f"{version}/")}
        self._put(model, HeldModel(versions, files))

    def forget(self, model: str, version: int) -> None:
        self.kept.pop((model, version), None)
        self.drop(model, version)

    def write(self, model: str, files: Files) -> None:
        there = self.models.get(model, HeldModel({}))
        plans = {p: t for p, t in there.files.items() if p.endswith("plan.json")} if files else {}
        self._put(model, HeldModel(there.versions, {**plans, **files}))

    def keep(self, model: str) -> None:
        there = self.models[model]
        kept = {v: replace(held, kept=True) for v, held in there.versions.items()}
        self.kept |= {(model, v): held for v, held in kept.items()}
        self._put(model, HeldModel(kept))

    def bring_back(self, model: str) -> None:
        there = self.models[model]
        back = {v: replace(held, kept=False) for v, held in there.versions.items()}
        for version in back:
            self.kept.pop((model, version), None)
        self.models[model] = HeldModel(back)

    def erase(self, model: str) -> None:
        self.models.pop(model, None)

    def source_of(self, model: str, version: int) -> str:
        return f"/tree/{model}/{version}"

    def tear(self, told: str) -> None:
        self.torn = True

    def mend(self) -> None:
        self.torn = False

    def log(self, entry: Mapping[str, Any]) -> None:
        self.lines.append(json.loads(json.dumps(entry)))

    def ledger(self) -> Sequence[Mapping[str, Any]]:
        return self.lines

    def _put(self, name: str, model: HeldModel) -> None:
        if model.versions or model.files:
            self.models[name] = model
        else:
            self.models.pop(name, None)


@dataclass
class MemoryServer:
    """A Triton on a MemoryTree. `broken` are versions that do not load, `deadly` those whose load
    kills it, `wrong` those that answer golden requests otherwise.
    """

    tree: MemoryTree
    loaded: dict[str, HeldModel] = field(default_factory=dict)
    broken: set[tuple[str, int]] = field(default_factory=set)
    deadly: set[tuple[str, int]] = field(default_factory=set)
    wrong: set[tuple[str, int]] = field(default_factory=set)
    harmful: set[tuple[str, int]] = field(default_factory=set)
    """Versions that take their dependants down."""
    alive: bool = True
    ours: bool = True
    most_bytes: int = 0
    counted: dict[str, Counts] = field(default_factory=dict)
    answers: dict[str, Mapping[str, Array]] = field(default_factory=dict)
    watched: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    """Pipelines, and which versions each was seen to answer with."""
    run: str = "1"
    name: str = "memory"
    version: str = "2.51.0"
    bls_threads: int | None = None

    def close(self) -> None: ...

    def index(self) -> tuple[IndexEntry, ...]:
        self._answer()
        return tuple(
            IndexEntry(name, str(version), "READY")
            for name, model in self.loaded.items()
            for version in model.live
        )

    def load(self, model: str) -> None:
        self._answer()
        asked = self.tree.models.get(model, HeldModel({}))
        if not asked.files:
            raise InferenceError(f"failed to load '{model}', failed to poll")
        for version in asked.live:
            if (model, version) in self.deadly:
                self.alive = False
                self.loaded = {}
                raise WorldError("no Triton answers: socket closed")
            if version not in asked.versions or asked.versions[version].kept:
                raise InferenceError(f"{model} {version}: no such version")
            if (model, version) in self.broken:
                raise InferenceError(f"{model} {version}: cannot be loaded")
        if missing := self._missing(asked):
            raise InferenceError(f"{model}: {missing} is not loaded")
        self.loaded[model] = asked
        for version in asked.live:
            if (model, version) in self.harmful:
                for caller in [c for c in self.loaded if self._calls(c, model)]:
                    del self.loaded[caller]
        self._drop_orphans()
        self.look()

    def unload(self, model: str) -> None:
        self._answer()
        self.loaded.pop(model, None)
        self._drop_orphans()
        self.look()

    def counts(self, model: str) -> Counts:
        self._answer()
        return self.counted.get(model, Counts())

    def answer(self, model: str, sample: Sample) -> Mapping[str, Array]:
        self._answer()
        if model not in self.answers:
            raise InferenceError(f"{model}: no answer")
        return self.answers[model]

    def differences(self, model: str, sample: Sample) -> list[str]:
        self._answer()
        assert model in self.loaded, f"{model} is asked before it is loaded"
        live = self.loaded[model].live
        if any((model.removesuffix("__next"), version) in self.wrong for version in live):
            return ["`y`: 1 expected, 2 came"]
        return []

    def revive(self) -> bool:
        if self.alive or not self.ours:
            return False
        self.alive = True
        for _ in self.tree.models:  # callees may come after their callers in it
            for name, model in self.tree.models.items():
                if model.files and name not in self.loaded and not self._missing(model):
                    self.loaded[name] = model
        return True

    def _answer(self) -> None:
        if not self.alive:
            raise WorldError("no Triton answers")

    def _missing(self, model: HeldModel) -> str:
        for name, version in calls_of(model.files, model.live):
            callee = self.loaded.get(name)
            if config_of(model.files).steps and (callee is None or version not in callee.live):
                return f"{name} {version}"
        return ""

    def _calls(self, caller: str, callee: str) -> bool:
        model = self.loaded[caller]
        return any(name == callee for name, _ in calls_of(model.files, model.live))

    def _drop_orphans(self) -> None:
        while gone := [name for name, model in self.loaded.items() if self._missing(model)]:
            for name in gone:
                del self.loaded[name]

    def look(self) -> None:
        """What a client that never pauses would see of the watched pipelines."""
        for name, seen in self.watched.items():
            assert name in self.loaded, f"`{name}` answers no more"
            self._reach(name, self.loaded[name].live[-1])
            seen.add(self.loaded[name].live)

    def _reach(self, name: str, version: int) -> None:
        model = self.loaded.get(name)
        assert model is not None, f"`{name}` is called and not loaded"
        assert version in model.live, f"`{name}` {version} is called, {model.live} are loaded"
        for callee, pin in calls_of(model.files, (version,)):
            self._reach(callee, pin)


def memory_target(*models: Wanted) -> tuple[MemoryTree, MemoryServer]:
    tree = MemoryTree()
    tree.sources = {m.source: m for m in models}
    return tree, MemoryServer(tree)


def live(server: MemoryServer) -> dict[str, tuple[int, ...]]:
    return {name: model.live for name, model in server.loaded.items()}


class Workshop:
    """Two leaves and five pipelines over them, whose versions move with what they call."""

    FORMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
        "inner": ("ensemble", ("a",)),
        "deep": ("ensemble", ("inner", "b")),
        "runs": ("bls", ("inner", "a")),
        "outer": ("ensemble", ("runs", "deep")),
        "other": ("ensemble", ("b",)),
    }

    def __init__(self) -> None:
        self._numbers: dict[str, dict[tuple[int, ...], int]] = {}

    def build(self, a: int, b: int, *, deeper: bool = True) -> list[Wanted]:
        """Everything for versions of the leaves; without `deeper`, `other` and `inner` alone."""
        versions = {"a": a, "b": b}
        models = [wanted("a", a, leaf(), size=10), wanted("b", b, leaf(), size=10)]
        for name, (form, callees) in self.FORMS.items():
            if not deeper and name in ("deep", "runs", "outer"):
                continue
            calls = {callee: versions[callee] for callee in callees}
            numbers = self._numbers.setdefault(name, {})
            versions[name] = numbers.setdefault(tuple(calls.values()), len(numbers) + 1)
            is_bls = form == "bls"
            text = leaf() if is_bls else ensemble(*callees)
            how = {"pipeline": True, "samples": 1, "plan": is_bls, "runner": is_bls}
            models.append(wanted(name, versions[name], text, calls, **how))  # type: ignore[arg-type]
        return models
