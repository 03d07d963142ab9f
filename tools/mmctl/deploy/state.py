"""What a target holds and runs, and what it shall: values that the plan is made from. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from mmctl.files import render_json
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import parse_config, pin_config, with_parameter
from mmctl.triton.repository import CANARY, CONFIG, NEXT

Versions = tuple[int, ...]
Files = Mapping[str, bytes]
"""What of a model may change while its versions do not, by path inside its folder: configs, labels,
warm-up data, and `<version>/plan.json`, which names the models that a pipeline calls."""

PLAN = "plan.json"
STEP = "step.json"


@dataclass(frozen=True, slots=True)
class Held:
    """A version folder. `calls` and `config`, unpinned, are those of its manifest."""

    key: str
    bytes: int = 0
    config: str = ""
    calls: Mapping[str, int] = field(default_factory=dict)
    runner: bool = False
    """Whether a runner of mmctl runs it, which reads its tensors from this folder."""
    kept: bool = False
    """Whether it lies beside the tree, where Triton does not see it."""


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model of the served tree, and its versions beside the tree. One without files is served no
    more: nobody calls it, and a rollback may want it back.
    """

    versions: Mapping[int, Held]
    files: Files = field(default_factory=dict)

    @property
    def live(self) -> Versions:
        """The versions that Triton is told to serve."""
        if CONFIG not in self.files:
            return ()
        named = config_of(self.files).versions
        return named or tuple(sorted(self.versions))[-1:]

    @property
    def share(self) -> float:
        """How many percent of the requests a candidate takes; 0 when no canary stands on it."""
        return share_of(self.files) if CONFIG in self.files else 0.0


@dataclass(frozen=True, slots=True)
class TreeState:
    """A served tree. `keys` are the build keys that each number ever had here, by model; `torn`
    says that an earlier deploy was cut short.
    """

    models: Mapping[str, HeldModel] = field(default_factory=dict)
    keys: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    torn: bool = False


@dataclass(frozen=True, slots=True)
class ServerState:
    """Which versions of which models are READY, and the reason of each that failed."""

    ready: Mapping[str, frozenset[int]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model to serve. `files` are unpinned; `source` is its version folder.

    `pipeline`: it is declared in ensembles/, so it may have golden requests, `samples` of them.
    """

    name: str
    version: int
    held: Held
    files: Files
    source: str
    pipeline: bool = False
    samples: int = 0


@cache
def _parsed(text: bytes) -> ModelConfig:
    return parse_config(text.decode(), where=CONFIG)


def config_of(files: Files) -> ModelConfig:
    return _parsed(files[CONFIG])


def share_of(files: Files) -> float:
    try:
        return float(config_of(files).parameters.get(CANARY, 0))
    except ValueError:
        return 0.0


def with_share(files: Files, share: float) -> dict[str, bytes]:
    """The files of a candidate that takes so many percent of the requests; with 0, of one that
    takes none.
    """
    value = f"{share:g}" if share else ""
    return {
        path: with_parameter(text.decode(), CANARY, value, where=path).encode()
        if is_config(path)
        else text
        for path, text in files.items()
    }


def is_ensemble(files: Files) -> bool:
    """Versions of an ensemble share one config, which is all that they are."""
    return bool(config_of(files).steps)


def calls_of(files: Files, live: Versions) -> Iterator[tuple[str, int]]:
    """Every model and version that the live versions of a model call, as the files say now."""
    for step in config_of(files).steps:
        yield step.model, step.version
    for version in live:
        if plan := files.get(f"{version}/{PLAN}"):
            pins = json.loads(plan).get("pins", {})
            yield from ((name, int(pin)) for name, pin in pins.items())


def settle(
    wanted: Wanted, files: Files, live: Versions, *, name: str = "", stand_ins: Sequence[str] = ()
) -> dict[str, bytes]:
    """`files` with which Triton serves `live` of a model: its policy, and every call pinned.

    `name` is another name to serve it under. Models in `stand_ins` are called under the name of
    their candidate.
    """
    calls = wanted.held.calls
    names = {callee: callee + NEXT if callee in stand_ins else callee for callee in calls}
    names |= {callee + NEXT: chosen for callee, chosen in names.items()}
    pins = {**calls, **{callee + NEXT: version for callee, version in calls.items()}}
    settled = dict(files)
    for path, content in files.items():
        if is_config(path):
            settled[path] = pin_config(
                content.decode(),
                where=path,
                versions=live,
                calls=pins,
                name=name or wanted.name,
                names=names,
            ).encode()
        elif path == f"{wanted.version}/{PLAN}":
            settled[path] = _renamed(content, names)
    return settled


def is_config(path: str) -> bool:
    """config.pbtxt, or one of `configs/`."""
    return PurePosixPath(path).suffix == ".pbtxt"


def is_plan(path: str) -> bool:
    return PurePosixPath(path).name == PLAN


def _renamed(content: bytes, names: Mapping[str, str]) -> bytes:
    """A plan.json that calls other models in the place of its own."""
    plan: dict[str, Any] = json.loads(content)
    for key in ("pins", "digests"):
        plan[key] = {names.get(name, name): value for name, value in plan.get(key, {}).items()}
    for node in plan.get("nodes", []):
        if "model" in node:
            node["model"] = names.get(node["model"], node["model"])
    return render_json(plan).encode()
