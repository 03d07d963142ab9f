"""Carry out a plan, or leave the target as it was. Decides nothing: the plan has every step.

Each step is proven on one replica before the next one is asked. Steps are undone in reverse when
one fails. A process that is killed leaves a tree that Triton can serve, old or new, and a mark by
which the next deployment knows to go on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar, assert_never

from mmctl.client.samples import Sample
from mmctl.deploy.replicas import replicas_of
from mmctl.deploy.state import HeldModel, Versions
from mmctl.deploy.steps import Copy, Load, Plan, Remove, Step, Try
from mmctl.deploy.target import Server, Tree, state_of
from mmctl.errors import InferenceError, MmctlError, Refused, WorldError
from mmctl.server.log import tidy
from mmctl.triton.repository import NEXT

T = TypeVar("T")
Say = Callable[[str], None]
Seam = Callable[[str], None]
"""Called at every point at which a process may die; tests die there."""

SETTLE_S = 5.0
"""Triton may need so long to unload what a load has replaced."""
REVIVE_S = 120.0
POLL_S = 0.05


class Vanished(WorldError):
    """The server stopped answering in the middle of a step."""


DRAIN_S = 1.0
REPLACES = ("serve", "switch", "settings", "settle", "again", "resume")
"""Loads after which requests may still be under way in what was replaced."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to deploy to. After a load that replaces a model, `drain_s` pass before what the old
    one called may go: a version that is loaded again under its own number does not show in the
    index while its last requests are answered.
    """

    tree: Tree
    server: Server
    drain_s: float = 0.0

    @property
    def replicas(self) -> tuple[Server, ...]:
        return replicas_of(self.server)


@dataclass(slots=True)
class _Turn:
    """A step that has begun, and how many of the replicas were asked for it."""

    step: Step
    asked: int = 0

    def of(self, replicas: Sequence[Server]) -> Iterator[Server]:
        """Each replica in turn."""
        for server in replicas:
            self.asked += 1
            yield server


def apply(
    plan: Plan,
    target: Target,
    golden: Mapping[str, Sequence[Sample]],
    *,
    say: Say = lambda _: None,
    seam: Seam = lambda _: None,
) -> None:
    """Raises Refused when a version is no good, WorldError when the server or the disk fails; by
    then the target runs what it ran before, or the message says what it does not.
    """
    held = target.tree.read().models
    before = [_served(held, server) for server in target.replicas]
    done: list[_Turn] = []
    seam("begin")
    target.tree.tear("\n".join(step.does for step in plan.steps))
    for number, step in enumerate(plan.steps, 1):
        seam(f"before {number}")
        say(f"  {number}/{len(plan.steps)} {step.does}")
        done.append(_Turn(step))
        try:
            _do(done[-1], target, golden, seam)
        except (MmctlError, OSError, KeyboardInterrupt) as problem:
            where = f"step {number} of {len(plan.steps)} ({step.does})" + _on(done[-1], target)
            raise _undo_all(done, target, before, problem, where, say) from problem
    seam("end")
    target.tree.mend()


def _on(turn: _Turn, target: Target) -> str:
    several = len(target.replicas) > 1 and turn.asked
    return f" on {target.replicas[turn.asked - 1].name}" if several else ""


def _served(held: Mapping[str, HeldModel], server: Server) -> dict[str, Versions]:
    """What must be ready again when all is undone: what the tree asks for and is ready now."""
    ready = state_of(server.index()).ready
    return {
        name: model.live
        for name, model in held.items()
        if ready.get(name, frozenset()) == frozenset(model.live) and not name.endswith(NEXT)
    }


def _do(turn: _Turn, target: Target, golden: Mapping[str, Sequence[Sample]], seam: Seam) -> None:
    tree, step = target.tree, turn.step
    match step:
        case Copy():
            tree.copy(step.model, step.version, step.source)
        case Load():
            tree.write(step.model, step.files)
            for server in turn.of(target.replicas):
                seam(f"written {step.model}" if turn.asked == 1 else f"loaded {step.model}")
                with suppress(Refused) if step.may_fail else nullcontext():
                    _load(server, step.model)
                    _await_ready(server, step.ready)
            _drain(step, target.replicas, target.drain_s)
        case Try():
            for server in turn.of(target.replicas):
                _try(step, server, golden[step.pipeline])
        case Remove():
            for server in turn.of(target.replicas):
                server.unload(step.model)
                _await_none(server, step.model, "READY", "UNLOADING")
                seam(f"unloaded {step.model}")
            (tree.keep if step.keep else tree.erase)(step.model)
        case _:
            assert_never(step)


def _load(server: Server, model: str) -> None:
    try:
        server.load(model)
    except InferenceError as error:
        raise Refused(f"`{model}` does not load: {tidy(error.message)}") from error
    except WorldError as error:
        raise Vanished(f"Triton died while it loaded `{model}`, or cannot be reached") from error


def _try(step: Try, server: Server, samples: Sequence[Sample]) -> None:
    for sample in samples:
        try:
            found = server.differences(step.model, sample)
        except InferenceError as error:
            raise Refused(f"golden request `{sample.name}`: {error.message}") from error
        if found:
            raise Refused(
                f"golden request `{sample.name}` of `{step.pipeline}`: {found[0]}",
                hint="correct the pipeline, or the sample if the new answer is what you want",
            )


def _drain(step: Load, replicas: Sequence[Server], drain_s: float) -> None:
    """Until the last requests are answered by what the load has replaced."""
    if step.before is not None and step.why in REPLACES:
        for server in replicas:
            _await_none(server, step.model, "UNLOADING")
        time.sleep(drain_s)


def _await_ready(server: Server, ready: Mapping[str, Versions]) -> None:
    """Rule: a load may say yes and take a dependant down. Raises Refused then."""
    deadline = time.monotonic() + SETTLE_S
    while wrong := _not_ready(server, ready):
        if time.monotonic() > deadline:
            raise Refused("; ".join(wrong.values()))
        time.sleep(POLL_S)


def _await_none(server: Server, model: str, *states: str) -> None:
    """Until no version of the model is in one of these states, `SETTLE_S` at most.

    What is still asked it answers first, and for that it needs what it calls.
    """
    deadline = time.monotonic() + SETTLE_S
    while any(e.model == model and e.state in states for e in server.index()):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)


def _not_ready(server: Server, ready: Mapping[str, Versions]) -> dict[str, str]:
    """What is wrong by model."""
    state = state_of(server.index())
    return {
        name: f"`{name}` {_shown(live)} shall be ready, Triton has {_shown(found)}"
        + (f": {tidy(state.failed[name])}" if name in state.failed else "")
        for name, live in ready.items()
        if (found := tuple(sorted(state.ready.get(name, ())))) != live
    }


def _shown(versions: Versions) -> str:
    return " and ".join(map(str, versions)) or "none"


def _undo_all(
    done: Sequence[_Turn],
    target: Target,
    before: Sequence[Mapping[str, Versions]],
    problem: BaseException,
    where: str,
    say: Say,
) -> BaseException:
    """The error to raise once the target is as it was."""
    say("undoing")
    dead = {done[-1].asked - 1} if isinstance(problem, Vanished) else set[int]()
    failed: list[str] = []
    for turn in reversed(done):
        try:
            _undo(turn, target, dead)
        except MmctlError as error:
            failed.append(f"{turn.step.undo}: {error.message}")
    replicas = target.replicas
    revived = {number for number in dead if replicas[number].revive()}
    for number, server in enumerate(replicas):
        if number in dead - revived:
            who = server.name if len(replicas) > 1 else "Triton"
            failed.append(f"{who} does not answer; its tree is the old one")
        else:
            timeout_s = REVIVE_S if number in revived else SETTLE_S
            failed += _restore(server, before[number], timeout_s)
    if not failed:
        target.tree.mend()
    after = "the server runs what it ran before"
    if len(replicas) > 1:
        after = "all replicas run what they ran before"
    if revived:
        after = "it was started again, and runs what it ran before"
    return _told(problem, where, failed, after, is_revived=bool(revived))


def _told(
    problem: BaseException, where: str, failed: Sequence[str], after: str, *, is_revived: bool
) -> BaseException:
    if isinstance(problem, OSError):
        problem = WorldError(str(problem))
    if not isinstance(problem, MmctlError):
        return problem
    if failed:
        after = "not all could be undone (" + "; ".join(failed) + ")"
    kind = Refused if isinstance(problem, Refused) or is_revived else WorldError
    return kind(
        f"{where}: {problem.message}; {after}",
        hint=problem.hint if not failed else "see to the server, then run `mmctl deploy` again",
    )


def _undo(turn: _Turn, target: Target, dead: set[int]) -> None:
    """Undo one step on the replicas that were asked for it, in the tree alone for those that do
    not answer: these are added to `dead`.
    """
    tree, step = target.tree, turn.step

    def ask(what: Callable[[Server], None]) -> None:
        for number, server in enumerate(target.replicas[: turn.asked]):
            if number not in dead and not _answers(what, server):
                dead.add(number)

    match step:
        case Copy():
            tree.drop(step.model, step.version)
        case Load(before=None):
            ask(lambda server: server.unload(step.model))
            tree.write(step.model, {})
        case Load():
            tree.write(step.model, step.before or {})
            ask(lambda server: server.load(step.model))
            ask(lambda server: _await_none(server, step.model, "UNLOADING"))
            time.sleep(target.drain_s if step.why in REPLACES else 0)
        case Remove(keep=True):
            tree.bring_back(step.model)
            tree.write(step.model, step.before or {})
            ask(lambda server: server.load(step.model))
        case Try() | Remove():
            pass
        case _:
            assert_never(step)


def _answers(ask: Callable[[T], None], of: T) -> bool:
    """Whether Triton answered; what it answered shows in the index."""
    try:
        ask(of)
    except InferenceError:
        return True
    except WorldError:
        return False
    return True


def _restore(server: Server, before: Mapping[str, Versions], timeout_s: float) -> list[str]:
    """What is not ready as it was, after so long at most. What a bad load took down is loaded."""
    deadline = time.monotonic() + timeout_s
    while wrong := _problems(server, before):
        for name in wrong:
            _answers(server.load, name)
        if time.monotonic() >= deadline:
            return list(_problems(server, before).values())
        time.sleep(POLL_S)
    return []


def _problems(server: Server, before: Mapping[str, Versions]) -> dict[str, str]:
    try:
        return _not_ready(server, before)
    except WorldError:
        return dict.fromkeys(before, "Triton does not answer")
