"""The steps of a deployment, as values: what each does, and how it is undone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from mmctl.deploy.state import Files, Share, Versions, share_of
from mmctl.triton.repository import NEXT

Why = Literal[
    "serve",
    "beside",
    "candidate",
    "canary",
    "shadow",
    "switch",
    "settings",
    "settle",
    "retire",
    "again",
    "resume",
]

DOES: Mapping[Why, str] = {
    "serve": "serve {model} {live}",
    "beside": "load {model} {live} side by side, until its callers have switched",
    "candidate": "load {of} {live} as {model}, which nobody calls yet",
    "canary": "give {percent:g} % of the requests for {of} to {model} {live}",
    "shadow": "copy {percent:g} % of the requests for {of} to {model} {live}, whose answers nobody "
    "gets",
    "switch": "switch {model} to {live}",
    "settings": "load {model} {live} with other settings",
    "settle": "let {model} {live} call its models by their own names again",
    "retire": "leave {model} {live} alone in service",
    "again": "load {model} {live} once more: it is not ready",
    "resume": "load {model} {live} as the tree has it: an earlier deploy was cut short",
}


@dataclass(frozen=True, slots=True)
class Copy:
    """Bring the version folder at `source` into the tree."""

    model: str
    version: int
    source: str
    bytes: int = 0

    @property
    def does(self) -> str:
        return f"copy {self.model} {self.version}"

    @property
    def undo(self) -> str:
        return f"remove {self.model} {self.version}"


@dataclass(frozen=True, slots=True)
class Load:
    """Write the files of a model and load it. `before` are those that it had, None for none.

    `ready` is what the index must say after it: versions of the model and of all that call it.
    `adds_bytes` is loaded beside what is loaded, for as long as the load takes.
    """

    model: str
    live: Versions
    files: Files = field(repr=False)
    before: Files | None = field(repr=False)
    ready: Mapping[str, Versions]
    why: Why
    adds_bytes: int = 0

    @property
    def share(self) -> Share | None:
        """What the model gets of the requests, where it is a candidate."""
        return share_of(self.files)

    @property
    def may_fail(self) -> bool:
        """What a deploy that was cut short has left may be no good: this one brings another."""
        return self.why == "resume"

    @property
    def does(self) -> str:
        live = " and ".join(map(str, self.live))
        of, percent = self.model.removesuffix(NEXT), self.share.percent if self.share else 0
        return DOES[self.why].format(model=self.model, live=live, of=of, percent=percent)

    @property
    def undo(self) -> str:
        if self.before is None:
            return f"unload {self.model} and remove it"
        return f"write what {self.model} had and load it"


@dataclass(frozen=True, slots=True)
class Try:
    """Send the golden requests of a pipeline to its candidate, and compare the answers."""

    pipeline: str
    samples: int

    @property
    def model(self) -> str:
        return self.pipeline + NEXT

    @property
    def does(self) -> str:
        requests = "request" if self.samples == 1 else "requests"
        return f"send {self.samples} golden {requests} to {self.model}"

    @property
    def undo(self) -> str:
        return "nothing to undo"


@dataclass(frozen=True, slots=True)
class Remove:
    """Unload a model and take it out of the tree; `keep` its versions beside the tree."""

    model: str
    keep: bool
    before: Files | None = field(default=None, repr=False)

    @property
    def does(self) -> str:
        return f"unload {self.model}" + (
            ", which nothing calls any more; its versions are kept" if self.keep else ""
        )

    @property
    def undo(self) -> str:
        return f"bring {self.model} back and load it" if self.keep else "nothing to undo"


Step = Copy | Load | Try | Remove


def as_value(step: Step) -> dict[str, object]:
    """A step as `--json` tells it."""
    shared = {"model": step.model, "does": step.does, "undo": step.undo}
    match step:
        case Copy():
            return {"step": "copy", **shared, "version": step.version, "bytes": step.bytes}
        case Load():
            added = {"live": list(step.live), "adds_bytes": step.adds_bytes}
            share = {"percent": step.share.percent} if step.share else {}
            return {"step": "load", "why": step.why, **shared, **added, **share}
        case Try():
            return {"step": "try", **shared, "samples": step.samples}
        case Remove():
            return {"step": "remove", **shared, "keep": step.keep}
        case _:
            assert_never(step)


@dataclass(frozen=True, slots=True)
class Move:
    """From which live versions a model goes to which; a new one comes from none."""

    before: Versions
    after: Versions
    keys: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` in order; `moves` is what they amount to. `extra_bytes` is the most that is loaded at
    once beside what is loaded now, by the sizes of the files.
    """

    steps: tuple[Step, ...] = ()
    moves: Mapping[str, Move] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    extra_bytes: int = 0
