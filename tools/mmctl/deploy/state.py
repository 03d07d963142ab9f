"""What a target holds and runs, and what it shall: values that the plan is made from. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Literal

from mmctl.files import render_json
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import parse_config, pin_config, with_parameter
from mmctl.triton.repository import (
    CANARY,
    CONFIG,
    DIGEST,
    NEXT,
    SHADOW,
    digests_of,
    render_digests,
)

Versions = tuple[int, ...]
Files = Mapping[str, bytes]
"""What of a model may change while its versions do not, by path inside its folder: configs, labels,
warm-up data, and `<version>/plan.json`, which names the models that a pipeline calls."""

PLAN = "plan.json"
STEP = "step.json"

Kind = Literal["canary", "shadow"]
PARAMETERS: Mapping[Kind, str] = {"canary": CANARY, "shadow": SHADOW}


@dataclass(frozen=True, slots=True)
class Share:
    """What a candidate gets of the requests for its model: so many `percent` of them go to it
    instead of the live one (a canary), or to both while the live one answers (a shadow).
    """

    percent: float
    kind: Kind = "canary"


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
    def share(self) -> Share | None:
        """What a candidate gets of the requests; None when it is only tried or stands in."""
        return share_of(self.files) if CONFIG in self.files else None


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


def share_of(files: Files) -> Share | None:
    said = config_of(files).parameters
    for kind, parameter in PARAMETERS.items():
        with suppress(ValueError):
            if percent := float(said.get(parameter, 0)):
                return Share(percent, kind)
    return None


def with_share(files: Files, share: Share | None) -> dict[str, bytes]:
    """The files of a candidate that gets this share of the requests, or none."""
    values = dict.fromkeys(PARAMETERS.values(), "")
    if share is not None:
        values[PARAMETERS[share.kind]] = f"{share.percent:g}"
    return _with_parameters(files, values)


def said_digests(files: Files) -> dict[int, str]:
    """The build keys by version that a config tells the clients."""
    return digests_of(config_of(files).parameters.get(DIGEST, "")) if CONFIG in files else {}


def with_digests(files: Files, keys: Mapping[int, str]) -> dict[str, bytes]:
    """The files of a model whose configs tell these, or none."""
    return _with_parameters(files, {DIGEST: render_digests(keys)})


def _with_parameters(files: Files, values: Mapping[str, str]) -> dict[str, bytes]:
    """The files of a model in whose configs these parameters have these values; "" for none."""

    def config(text: str, path: str) -> str:
        for parameter, value in values.items():
            text = with_parameter(text, parameter, value, where=path)
        return text

    return {
        path: config(text.decode(), path).encode() if is_config(path) else text
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
        if plan := _plan_of(files.get(f"{version}/{PLAN}", b"")):
            yield from plan["pins"].items()


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


def _plan_of(content: bytes) -> dict[str, Any] | None:
    """None for what is no plan of ours: a file of the user's own may have that name."""
    with suppress(ValueError, RecursionError):
        plan = json.loads(content)
        is_ours = isinstance(plan, dict) and {"schema", "nodes"} <= {*plan}
        pins = plan.get("pins") if is_ours else None
        if isinstance(pins, dict) and all(isinstance(pin, int) for pin in pins.values()):
            return dict(plan)
    return None


def _renamed(content: bytes, names: Mapping[str, str]) -> bytes:
    """A plan.json that calls other models in the place of its own."""
    plan = _plan_of(content)
    if plan is None:
        return content
    for key in ("pins", "digests"):
        plan[key] = {names.get(name, name): value for name, value in plan.get(key, {}).items()}
    for node in plan["nodes"]:
        if "model" in node:
            node["model"] = names.get(node["model"], node["model"])
    return render_json(plan).encode()
