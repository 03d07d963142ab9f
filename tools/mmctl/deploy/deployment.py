"""A deployment from what is wanted to the line in the ledger. What `mmctl deploy` and
`mmctl rollback` do, one at a time for each target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mmctl.building.check import target_of
from mmctl.building.compiled import oldest_release
from mmctl.cache.epochs import move_epoch
from mmctl.cache.settings import read_settings
from mmctl.client.status import Counts
from mmctl.deploy.apply import DRAIN_S, Seam, Target, apply
from mmctl.deploy.canary import (
    plan_candidate,
    plan_without,
    refuse_beside,
    standing,
    the_candidate,
)
from mmctl.deploy.gather import Gathered, gather, gather_back, gather_candidate
from mmctl.deploy.ledger import What, entry, outcome_of
from mmctl.deploy.mirrored import MirroredTree
from mmctl.deploy.object_tree import ObjectTree
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.prune import Old
from mmctl.deploy.release import release_for
from mmctl.deploy.replicas import named, replicas_of, replicated
from mmctl.deploy.servers import GrpcServer, embedded_server
from mmctl.deploy.state import PARAMETERS, ServerState, Share, TreeState, calls_of
from mmctl.deploy.steps import Load, Move, Plan, Remove
from mmctl.deploy.store import Store, is_url, read_url
from mmctl.deploy.target import Server, Tree, state_of
from mmctl.deploy.threads import warn_of_threads
from mmctl.deploy.tree import LocalTree
from mmctl.diagnostics import nearest
from mmctl.errors import InputError, MmctlError, Refused, WorldError
from mmctl.lint.repository import Target as JudgedFor
from mmctl.server.composed import COMPOSE as COMPOSE_FILE
from mmctl.server.composed import TARGET as COMPOSE
from mmctl.server.composed import read_composed
from mmctl.server.info import EMBEDDED, read_server
from mmctl.server.runtime import precompile, read_runtime, runtime_root
from mmctl.serving.session import connect
from mmctl.triton.repository import NEXT
from mmctl.workspace import Workspace

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """A target that is open, and that nobody else deploys to meanwhile."""

    name: str
    workspace: Workspace
    tree: Tree
    server: Server


@dataclass(frozen=True, slots=True)
class Deployment:
    """A plan and all that it takes to carry it out; `is_torn`: the last one was cut short."""

    what: What
    names: tuple[str, ...]
    plan: Plan
    gathered: Gathered
    is_torn: bool


@contextmanager
def open_place(
    workspace: Workspace, target: str, say: Say, *, alone: bool = True
) -> Iterator[Place]:
    """A target of mmctl.yaml, or `embedded`: the running embedded server. Raises InputError.

    `alone`: nobody else deploys to it meanwhile; it is waited for whoever does now.
    """
    tree = tree_of(workspace, target)
    with _alone(tree, target, say) if alone else nullcontext():
        server = _server_of(workspace, target, say)
        try:
            yield Place(target, workspace, tree, server)
        finally:
            server.close()


@contextmanager
def open_tree(workspace: Workspace, target: str, say: Say) -> Iterator[Tree]:
    """The tree of a target alone, whether or not its server runs. Raises InputError."""
    tree = tree_of(workspace, target)
    with _alone(tree, target, say):
        yield tree


def tree_of(workspace: Workspace, target: str) -> Tree:
    """Raises InputError for a target that is not known, or whose tree is nowhere."""
    if target == EMBEDDED:
        return LocalTree(workspace.served(EMBEDDED), _precompiler(workspace))
    if target == COMPOSE and target not in workspace.targets:
        return _composed_tree(workspace)
    known = workspace.target(target)
    if known.repository is None:
        raise InputError(
            f"target `{target}` has no `repository`: mmctl does not know where its Triton reads",
            hint="add the folder that it serves, as this machine sees it, in mmctl.yaml",
        )
    trees = [
        _tree_at(workspace, target, place, f"{target}{number or ''}.lock")
        for number, place in enumerate(dict.fromkeys(known.repository))
    ]
    return trees[0] if len(trees) == 1 else MirroredTree(tuple(trees))


def _tree_at(workspace: Workspace, target: str, repository: str, turn: str) -> Tree:
    if is_url(repository):
        address = read_url(repository, where=f"target `{target}`")
        return ObjectTree(Store(address), address.place, workspace.served(turn))
    root = workspace.root / repository
    if not root.is_dir():
        raise InputError(f"target `{target}`: {root} is no folder", hint="make it, or mount it")
    return LocalTree(root)


def _composed_tree(workspace: Workspace) -> Tree:
    root = read_composed(workspace.root).served
    if not root.is_dir():
        raise InputError(
            f"target `{COMPOSE}`: {root}, which {COMPOSE_FILE} mounts, is no folder",
            hint="make it with `mmctl serve`, or name another in MMCTL_SERVED",
        )
    running = read_server(workspace.state, EMBEDDED)
    if running is not None and Path(running.served) == root.resolve():
        raise InputError(
            f"target `{COMPOSE}`: the embedded server serves {workspace.shown(root)} too",
            hint="end it with `mmctl stop`, or name another folder in MMCTL_SERVED",
        )
    return LocalTree(root)


def _alone(tree: Tree, target: str, say: Say) -> AbstractContextManager[None]:
    waiting = f"waiting: something else changes what `{target}` serves, a deployment or a build"
    return tree.alone(lambda: say(waiting))


def _precompiler(workspace: Workspace) -> Callable[[Sequence[Path]], None]:
    """For the embedded server's own Python; that of another server is not known."""
    runtime = read_runtime(runtime_root(workspace))

    def compile_shipped(folders: Sequence[Path]) -> None:
        if runtime is not None:
            precompile(runtime, folders)

    return compile_shipped


def _server_of(workspace: Workspace, target: str, say: Say) -> Server:
    if target == EMBEDDED:
        return embedded_server(workspace, say)
    with connect(workspace, target, [], say) as connection:
        return replicated(
            [GrpcServer(url, connection.headers, connection.tls) for url in connection.urls]
        )


def plan_forward(place: Place, names: Sequence[str], say: Say) -> Deployment:
    """To what the workspace has built of `names`; empty means everything, and that nothing else
    shall be served. Raises InputError, InvalidFiles, Refused, WorldError.
    """
    tree = place.tree.read()
    refuse_beside(standing(tree))
    gathered = gather(place.workspace, names, _judged_for(place, say), say)
    server = state_of(place.server.index())
    plan = _warned(place, plan_deploy(gathered.wanted, tree, server, whole=not names))
    return Deployment("deploy", tuple(names), plan, gathered, tree.torn)


def plan_beside(place: Place, name: str, share: Share, say: Say) -> Deployment:
    """To a candidate of what the workspace has built of `name`, beside the live one, with this
    share of the requests. Raises as `plan_forward`.
    """
    gathered = gather(place.workspace, [name], _judged_for(place, say), say)
    tree, server = place.tree.read(), state_of(place.server.index())
    plan = _warned(place, plan_candidate(gathered.wanted, name, share, tree, server))
    return Deployment(share.kind, (name,), plan, gathered, tree.torn)


def plan_promotion(place: Place, names: Sequence[str]) -> Deployment:
    """The candidate that stands becomes the live one. Raises InputError, Refused,
    WorldError.
    """
    tree, server = place.tree.read(), state_of(place.server.index())
    candidate = the_candidate(tree, names)
    gathered = gather_candidate(place.tree, tree, candidate.model)
    plan = _warned(place, plan_deploy(gathered.wanted, tree, server, trial=False))
    return Deployment("promote", (candidate.model,), plan, gathered, tree.torn)


def _warned(place: Place, plan: Plan) -> Plan:
    return warn_of_threads(plan, place.server.bls_threads)


def _judged_for(place: Place, say: Say) -> JudgedFor:
    """What the rules may rest on: what mmctl.yaml says of the target, and its servers of
    themselves.
    """
    built_for = oldest_release(place.workspace)
    if place.name == EMBEDDED:
        return JudgedFor(release=built_for)
    known = place.workspace.targets.get(place.name)
    versions = [server.version for server in replicas_of(place.server)]
    stated = known.release if known is not None else None
    release, warnings = release_for(place.name, stated, versions, built_for)
    for warning in warnings:
        say(f"warning: {warning}")
    if known is None:
        return JudgedFor(release=release, name=place.name)
    return replace(target_of(place.workspace, place.name), release=release)


def plan_back(place: Place, names: Sequence[str], to: int | None) -> Deployment:
    """To the version that each of `names` had before, or to version `to` of the one that is named.

    Without names: all that the last deployment moved. While a candidate stands that is what goes.
    Raises InputError, Refused, WorldError.
    """
    tree, server = place.tree.read(), state_of(place.server.index())
    if standing(tree) is not None:
        candidate = the_candidate(tree, names)
        if to is not None:
            refuse_beside(candidate)
        plan = plan_without(tree, server)
        return Deployment("undo", (candidate.model,), plan, Gathered((), {}), tree.torn)
    versions = _earlier(place.tree.ledger(), tree, names, to)
    gathered = gather_back(place.tree, tree, versions)
    plan = _warned(place, plan_deploy(gathered.wanted, tree, server, trial=False))
    return Deployment("rollback", tuple(versions), plan, gathered, tree.torn)


def _earlier(
    lines: Sequence[Mapping[str, Any]], tree: TreeState, names: Sequence[str], to: int | None
) -> dict[str, int]:
    if to is not None and len(names) != 1:
        raise InputError("`--to` is the version of one model", hint="name the model")
    for name in names:
        if name not in tree.models:
            raise InputError(f"the target has no `{name}`", hint=nearest(name, tree.models))
    if to is not None:
        return {names[0]: to}
    if not names:
        names = _moved_last(lines, tree)
    return {name: _before(lines, tree, name) for name in names}


def _moved_last(lines: Sequence[Mapping[str, Any]], tree: TreeState) -> list[str]:
    """What the last deployment moved and nobody calls; the rest follows from that."""
    for line in reversed(lines):
        rows = line.get("models", {}).items()
        moved = [name for name, (was, _) in rows if was and not name.endswith(NEXT)]
        if line.get("outcome") == "done" and moved:
            called = {
                callee
                for name, model in tree.models.items()
                if model.files and name in moved
                for callee, _ in calls_of(model.files, model.live)
            }
            return [name for name in moved if name not in called]
    raise InputError("nothing was deployed to this target that could be rolled back")


def _before(lines: Sequence[Mapping[str, Any]], tree: TreeState, name: str) -> int:
    live = tree.models[name].live
    for line in reversed(lines):
        was, will = line.get("models", {}).get(name, ((), ()))
        is_forward = line.get("what") in ("deploy", "promote")
        if is_forward and line.get("outcome") in ("begun", "done") and was and tuple(will) == live:
            return int(max(was))
    older = [version for version in tree.models[name].versions if version < max(live, default=0)]
    if not older:
        raise Refused(
            f"`{name}`: the target has no version before {max(live, default=0)}",
            hint="`mmctl status` shows what it has",
        )
    return max(older)


def carry_out(
    place: Place,
    deployment: Deployment,
    say: Say,
    seam: Seam = lambda _: None,
) -> None:
    """Apply the plan, and write down what came of it. Raises what `apply` raises."""

    def log(outcome: Any, reason: str = "", beside: Mapping[str, Any] | None = None) -> None:
        plan, names = deployment.plan, deployment.names
        line = entry(deployment.what, plan.moves, outcome, names=names, reason=reason)
        place.tree.log({**line, **(beside or {})})

    # The line says what the numbers stand for, and that the tree is what was deployed, even when
    # this process does not live to write the next one.
    log("begun")
    try:
        apply(
            deployment.plan,
            Target(place.tree, place.server, DRAIN_S),
            deployment.gathered.golden,
            say=say,
            seam=seam,
        )
    except BaseException as error:
        log(outcome_of(error), str(error))
        raise
    finally:
        _tell_caches(place, deployment.plan, say)
    log("done", beside=_beginning(place) if deployment.what in PARAMETERS else None)


def _tell_caches(place: Place, plan: Plan, say: Say) -> None:
    """The caches of the clients take no answer of before for one of now. A store that does not
    answer holds nothing up: versions are part of every key.
    """
    url = store_of(place)
    models = {step.model for step in plan.steps if isinstance(step, Load | Remove)}
    models |= {name.removesuffix(NEXT) for name in models}
    if url and models:
        try:
            move_epoch(url, models)
        except MmctlError as error:
            say(f"warning: the shared store was not told of it: {error.message}")


def store_of(place: Place) -> str:
    """The store that the clients of a target share; empty without one."""
    known = place.workspace.targets.get(place.name)
    if known is not None and known.store:
        return known.store
    info = read_server(place.workspace.state, EMBEDDED) if place.name == EMBEDDED else None
    if info is not None and info.store:
        return info.store
    return read_settings(place.workspace).store or ""


def _beginning(place: Place) -> dict[str, Any]:
    """What the ledger has of a candidate that begins: its share, and what the live one has counted
    by now, for the candidate has counted nothing yet, and in which run of the server.
    """
    candidate = standing(place.tree.read())
    if candidate is None:
        return {}
    found: dict[str, Any] = {"share": candidate.share.percent}
    with suppress(WorldError):
        counts = place.server.counts(candidate.model)
        found |= {"counts": asdict(counts), "run": place.server.run}
    return found


def counts_of(server: Server, model: str) -> Counts:
    """Nothing for a model that is not served, and by a server that does not tell."""
    try:
        return server.counts(model)
    except WorldError:
        return Counts()


def prune(tree: Tree, old: Sequence[Old]) -> None:
    """Remove versions that nothing needs, and write down which."""
    state = tree.read()
    for item in old:
        tree.forget(item.model, item.version)
    gone: dict[str, dict[int, str]] = {}
    for item in old:
        held = state.models[item.model].versions[item.version]
        gone.setdefault(item.model, {})[item.version] = held.key
    tree.log(entry("prune", {name: Move((), (), keys) for name, keys in gone.items()}, "done"))


@dataclass(frozen=True, slots=True)
class Standing:
    """A model on a server: what serves, what should, what it could be rolled back to."""

    model: str
    live: tuple[int, ...]
    ready: tuple[int, ...]
    held: tuple[int, ...]
    keys: Mapping[int, str]
    reason: str = ""
    replica: str = ""
    """Where there are several, which one."""

    @property
    def state(self) -> str:
        if self.live == self.ready:
            return "ready" if self.live else "kept"
        return "failed" if self.reason else "not ready"


def standings(place: Place) -> tuple[Standing, ...]:
    """Of each replica in turn; one of several that does not answer has nothing ready."""
    tree = place.tree.read()
    states = [(name, _state_if_any(server, name)) for name, server in named(place.server)]
    return tuple(
        Standing(
            name,
            model.live,
            tuple(sorted(server.ready.get(name, ()))),
            tuple(sorted(model.versions)),
            {version: held.key for version, held in model.versions.items()},
            server.failed.get(name, reason),
            replica,
        )
        for name, model in tree.models.items()
        if not name.endswith(NEXT)
        for replica, (server, reason) in states
    )


def _state_if_any(server: Server, replica: str) -> tuple[ServerState, str]:
    """What it serves, or why nobody knows. Raises WorldError for the only one."""
    try:
        return state_of(server.index()), ""
    except WorldError as error:
        if not replica:
            raise
        return ServerState(), error.message
