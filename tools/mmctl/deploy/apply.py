"""Carry out a plan, or leave the target as it was. Decides nothing: the plan has every step.

Steps are undone in reverse when one fails. A process that is killed leaves a tree that Triton can
serve, old or new, and a mark by which the next deployment knows to go on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import assert_never

from mmctl.client.samples import Sample
from mmctl.deploy.state import Versions
from mmctl.deploy.steps import Copy, Load, Plan, Remove, Step, Try
from mmctl.deploy.target import Server, Tree, state_of
from mmctl.errors import InferenceError, MmctlError, Refused, WorldError
from mmctl.server.log import tidy
from mmctl.triton.repository import NEXT

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
    before = _served(target)
    done: list[Step] = []
    seam("begin")
    target.tree.tear("\n".join(step.does for step in plan.steps))
    for number, step in enumerate(plan.steps, 1):
        seam(f"before {number}")
        say(f"  {number}/{len(plan.steps)} {step.does}")
        done.append(step)
        try:
            _do(step, target, golden, seam)
        except (MmctlError, OSError, KeyboardInterrupt) as problem:
            where = f"step {number} of {len(plan.steps)} ({step.does})"
            raise _undo_all(done, target, before, problem, where, say) from problem
    seam("end")
    target.tree.mend()


def _served(target: Target) -> dict[str, Versions]:
    """What must be ready again when all is undone: what the tree asks for and is ready now."""
    ready = state_of(target.server.index()).ready
    return {
        name: model.live
        for name, model in target.tree.read().models.items()
        if ready.get(name, frozenset()) == frozenset(model.live) and not name.endswith(NEXT)
    }


def _do(step: Step, target: Target, golden: Mapping[str, Sequence[Sample]], seam: Seam) -> None:
    tree, server = target.tree, target.server
    match step:
        case Copy():
            tree.copy(step.model, step.version, step.source)
        case Load():
            tree.write(step.model, step.files)
            seam(f"written {step.model}")
            with suppress(Refused) if step.may_fail else nullcontext():
                _load(server, step.model)
                _await_ready(server, step.ready)
            if step.before is not None and step.why in REPLACES:
                _await_none(server, step.model, "UNLOADING")
                time.sleep(target.drain_s)
        case Try():
            _try(step, server, golden[step.pipeline])
        case Remove():
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
    done: Sequence[Step],
    target: Target,
    before: Mapping[str, Versions],
    problem: BaseException,
    where: str,
    say: Say,
) -> BaseException:
    """The error to raise once the target is as it was."""
    say("undoing")
    answers = not isinstance(problem, Vanished)
    failed: list[str] = []
    for step in reversed(done):
        try:
            answers = _undo(step, target, answers=answers)
        except MmctlError as error:
            failed.append(f"{step.undo}: {error.message}")
    revived = not answers and target.server.revive()
    if answers or revived:
        failed += _restore(target.server, before, REVIVE_S if revived else SETTLE_S)
    else:
        failed.append("Triton does not answer; its tree is the old one")
    if not failed:
        target.tree.mend()
    return _told(problem, where, failed, revived=revived)


def _told(
    problem: BaseException, where: str, failed: Sequence[str], *, revived: bool
) -> BaseException:
    if isinstance(problem, OSError):
        problem = WorldError(str(problem))
    if not isinstance(problem, MmctlError):
        return problem
    after = "the server runs what it ran before"
    if revived:
        after = "it was started again, and runs what it ran before"
    if failed:
        after = "not all could be undone (" + "; ".join(failed) + ")"
    kind = Refused if isinstance(problem, Refused) or revived else WorldError
    return kind(
        f"{where}: {problem.message}; {after}",
        hint=problem.hint if not failed else "see to the server, then run `mmctl deploy` again",
    )


def _undo(step: Step, target: Target, *, answers: bool) -> bool:
    """Undo one step, in the tree alone where the server does not answer; whether it does."""
    tree, server = target.tree, target.server
    match step:
        case Copy():
            tree.drop(step.model, step.version)
        case Load(before=None):
            if answers:
                answers = _answers(lambda: server.unload(step.model))
            tree.write(step.model, {})
        case Load():
            tree.write(step.model, step.before or {})
            if answers:
                answers = _answers(lambda: server.load(step.model))
        case Remove(keep=True):
            tree.bring_back(step.model)
            tree.write(step.model, step.before or {})
            if answers:
                answers = _answers(lambda: server.load(step.model))
        case Try() | Remove():
            pass
        case _:
            assert_never(step)
    return answers


def _answers(ask: Callable[[], None]) -> bool:
    """Whether Triton answered; what it answered shows in the index."""
    try:
        ask()
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
            _answers(lambda name=name: server.load(name))  # type: ignore[misc]
        if time.monotonic() >= deadline:
            return list(_problems(server, before).values())
        time.sleep(POLL_S)
    return []


def _problems(server: Server, before: Mapping[str, Versions]) -> dict[str, str]:
    try:
        return _not_ready(server, before)
    except WorldError:
        return dict.fromkeys(before, "Triton does not answer")
