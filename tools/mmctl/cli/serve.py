"""`mmctl serve`, `stop` and `logs`: a Triton on this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.server.info import ServerInfo
    from mmctl.server.process import EmbeddedTriton
    from mmctl.server.runtime import Runtime
    from mmctl.server.store import EmbeddedStore
    from mmctl.workspace import Workspace

Target = Annotated[str, typer.Option("--target", metavar="NAME", help="Which server.")]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `mmctl serve` was asked for."""

    names: list[str]
    http: int
    grpc: int
    metrics: int
    docker: str | None
    tree: Path | None
    watch: bool
    rebuild: bool
    store: bool

    def arguments(self) -> list[str]:
        """The command line that asks for the same, with its answer as JSON."""
        words = ["serve", "--json", *self.names, f"--http={self.http}", f"--grpc={self.grpc}"]
        words.append(f"--metrics={self.metrics}")
        words += [f"--docker={self.docker}"] if self.docker else []
        words += [f"--tree={self.tree.resolve()}"] if self.tree else []
        words += ["--watch"] if self.watch else []
        words += ["--rebuild"] if self.rebuild else []
        words += ["--store"] if self.store else []
        return words


def serve(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Models or pipelines; all by default."),
    ] = None,
    *,
    http: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8000,
    grpc: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8001,
    metrics: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")
    ] = 8002,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it answers; `mmctl stop` ends it.")
    ] = False,
    docker: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Run this image instead of the embedded Triton."),
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Serve this model repository as it is.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Build and load again whenever a source is saved.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Serve what the sources say, not what was deployed.")
    ] = False,
    store: Annotated[
        bool, typer.Option("--store", help="Start a Valkey beside it: caches share their answers.")
    ] = False,
    json: Json = False,
) -> None:
    """Serve models and pipelines on this machine.

    Builds what is not built, listens on loopback ports only, and ends with Ctrl-C. Once something
    was deployed to it (`mmctl deploy embedded`) it serves exactly that.
    """
    workspace = context.workspace()
    wanted = Wanted(names or [], http, grpc, metrics, docker, tree, watch, rebuild, store)
    _refuse_misfits(workspace, wanted)
    if detach:
        from mmctl.server.detach import serve_detached
        from mmctl.server.info import log_path

        arguments = ["-C", str(workspace.root), *wanted.arguments()]
        output = log_path(workspace.state, "embedded").with_suffix(".out")
        answer = serve_detached(arguments, output, context.say)
        if isinstance(answer, int):
            raise typer.Exit(answer)
        _print_info(answer, json)
        return
    with ExitStack() as running:
        shared = running.enter_context(_start_store(workspace)) if store else None
        server = running.enter_context(_start(workspace, wanted))
        if shared is not None:
            server.announce_store(shared.url)
        for model, reason in server.failures().items():
            context.say(f"`{model}` is not served: {reason}")
        try:  # who has read where it is may end it at once
            _print_info(server.info, json)
            if watch:
                _watch(workspace, wanted, server)
            server.wait()
        except KeyboardInterrupt:
            context.say("stopping")


def stop(target: Target = "embedded") -> None:
    """End the server and wait until it has ended."""
    from mmctl.server.info import read_server, stop_server

    if (info := read_server(context.workspace().state, target)) is None:
        print(f"no server of `{target}` runs")
        return
    stop_server(info)
    print(f"stopped the server of `{target}`")


def logs(
    target: Target = "embedded",
    lines: Annotated[int, typer.Option("-n", metavar="N", min=0, help="How many lines.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the server ends.")
    ] = False,
) -> None:
    """Print the end of what the last server of the target wrote."""
    from mmctl.server.info import log_path
    from mmctl.server.logs import follow as follow_log
    from mmctl.server.logs import read_end

    state = context.workspace().state
    for line in read_end(log_path(state, target), lines):
        print(line)
    if follow:
        for line in follow_log(state, target):
            print(line, flush=True)


def _refuse_misfits(workspace: Workspace, wanted: Wanted) -> None:
    """Before anything is built: the tree that a running server reads must not be pruned."""
    from mmctl.server.info import EMBEDDED
    from mmctl.server.place import refuse_second

    if wanted.watch and (wanted.tree or wanted.docker):
        raise InputError(
            "`--watch` is for the workspace's own tree on the embedded Triton",
            hint="leave out `--tree` and `--docker`",
        )
    if _is_deployed(workspace, wanted) and (wanted.names or wanted.watch):
        raise InputError(
            "what this server serves was deployed to it",
            hint="run `mmctl serve` alone, or add `--rebuild` to serve what the sources say",
        )
    refuse_second(workspace.state, EMBEDDED)
    if wanted.docker:
        from mmctl.server.docker import require_engine

        require_engine()


def _is_deployed(workspace: Workspace, wanted: Wanted) -> bool:
    """Whether the workspace's own tree is served as it is: somebody has deployed to it."""
    from mmctl.building.served import ledger_path

    own = workspace.served("embedded")
    return not (wanted.tree or wanted.rebuild) and own.is_dir() and ledger_path(own).is_file()


def _note_rebuild(workspace: Workspace, wanted: Wanted) -> None:
    """In the ledger, where there is one: what follows is not what was deployed."""
    from mmctl.building.served import ledger_path
    from mmctl.deploy.ledger import entry
    from mmctl.deploy.tree import LocalTree

    tree = LocalTree(workspace.served("embedded"))
    if wanted.rebuild and ledger_path(tree.root).is_file():
        tree.log(entry("rebuild", {}, "done", names=wanted.names))
        tree.mend()


def _watch(workspace: Workspace, wanted: Wanted, server: EmbeddedTriton) -> None:
    from mmctl.serving.watch import watch_and_reload

    watch_and_reload(workspace, wanted.names, server, workspace.served("embedded"), context.say)


def _start_store(workspace: Workspace) -> EmbeddedStore:
    from mmctl.server.info import EMBEDDED, log_path
    from mmctl.server.store import EmbeddedStore

    return EmbeddedStore.start(log_path(workspace.state, f"{EMBEDDED}.store"))


def _start(workspace: Workspace, wanted: Wanted) -> EmbeddedTriton:
    from mmctl.server.process import EmbeddedTriton

    tree = wanted.tree or workspace.served("embedded")
    if wanted.docker:
        whole = wanted.tree is None and _materialise(workspace, wanted, tree)
        return EmbeddedTriton.start_in_docker(
            wanted.docker,
            tree,
            state=workspace.state,
            http=wanted.http,
            grpc=wanted.grpc,
            metrics=wanted.metrics,
            complete_configs=not whole,
            say=context.say,
        )
    runtime, whole = _prepare(workspace, wanted, tree)
    return EmbeddedTriton.start(
        runtime,
        tree,
        state=workspace.state,
        http=wanted.http,
        grpc=wanted.grpc,
        metrics=wanted.metrics,
        complete_configs=not whole,
        say=context.say,
    )


def _prepare(workspace: Workspace, wanted: Wanted, tree: Path) -> tuple[Runtime, bool]:
    """The runtime, and whether every config of the tree is whole; makes the workspace's own."""
    if wanted.tree:
        from mmctl.server.install import ensure_runtime

        return ensure_runtime(workspace, context.say), False
    if _is_deployed(workspace, wanted):
        from mmctl.building.served import read_tree
        from mmctl.server.install import ensure_runtime

        context.say("serving what was deployed (`--rebuild` serves what the sources say)")
        return ensure_runtime(workspace, context.say), read_tree(tree).whole
    from mmctl.serving.session import prepare

    with _alone(tree):
        _note_rebuild(workspace, wanted)
        prepared = prepare(workspace, wanted.names, tree, context.say)
    return prepared.runtime, prepared.tree.whole


def _materialise(workspace: Workspace, wanted: Wanted, tree: Path) -> bool:
    """The served tree for a container, which has a Python of its own; whether it is whole."""
    from mmctl.building.build import build
    from mmctl.building.served import materialise, read_tree
    from mmctl.serving.servable import without_images

    if _is_deployed(workspace, wanted):
        context.say("serving what was deployed (`--rebuild` serves what the sources say)")
        return read_tree(tree).whole
    names = wanted.names
    models = build(workspace, names, context.say).models
    if not names:
        models = without_images(workspace, models, names, context.say)
    with _alone(tree):
        _note_rebuild(workspace, wanted)
        return materialise(workspace, models, tree).whole


def _alone(tree: Path) -> AbstractContextManager[None]:
    """Nobody deploys to the tree while it is made."""
    from mmctl.building.served import lock_path
    from mmctl.files import exclusive

    return exclusive(lock_path(tree), lambda: context.say("waiting for a deployment to end"))


def _print_info(info: ServerInfo, json: bool) -> None:
    if json:
        from mmctl.cli.render import as_json

        print(as_json(info.shown), flush=True)
        return
    lines = [
        f"http     http://{info.http}",
        f"grpc     {info.grpc}",
        f"metrics  http://{info.metrics}/metrics",
        *([f"store    {info.store}"] if info.store else []),
    ]
    print("\n".join(lines), flush=True)
