"""A server for one command: the workspace built and served, the server found or started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mmctl.building.build import Built, build
from mmctl.building.served import ServedTree, Versions, materialise
from mmctl.client.tls import Tls
from mmctl.errors import InputError, WorldError
from mmctl.server.access import grpc_headers
from mmctl.server.composed import TARGET as COMPOSE
from mmctl.server.composed import read_composed
from mmctl.server.info import EMBEDDED, ServerInfo, read_server
from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime, precompile
from mmctl.serving.servable import without_images
from mmctl.workspace import Target, Workspace

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a Triton answers: `grpc` and, where it is known, `http` as host:port.

    `headers` go with every call, `otlp` is where it sends traces, `metrics` (host:port) where it
    has them, `pid` what it runs under on this machine; None where nobody knows. A `private` server
    ends with this command. Others like it answer at `replicas`, which has `grpc` too where there is
    more than one.
    """

    grpc: str
    http: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    private: bool = False
    tls: Tls | None = None
    replicas: tuple[str, ...] = ()
    otlp: str | None = None
    metrics: str | None = None
    pid: int | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        return self.replicas or (self.grpc,)


@dataclass(frozen=True, slots=True)
class PrivateConnection:
    """A Triton of this command alone, and what was built for it."""

    grpc: str
    http: str
    headers: Mapping[str, str]
    built: Built
    info: ServerInfo


@dataclass(frozen=True, slots=True)
class Prepared:
    """A workspace that is ready to be served."""

    runtime: Runtime
    built: Built
    tree: ServedTree


def prepare(
    workspace: Workspace,
    names: Sequence[str],
    root: Path,
    say: Say,
    *,
    live: Mapping[str, Versions] | None = None,
) -> Prepared:
    """Build `names` (empty: everything) and bring the served tree at `root` up to date.

    `live` is what a running server has loaded from that tree; see `materialise`.
    """
    built = build(workspace, names, say)
    runtime = ensure_runtime(workspace, say)

    def compile_shipped(folders: Sequence[Path]) -> None:
        precompile(runtime, folders)

    models = without_images(workspace, built.models, names, say)
    tree = materialise(workspace, models, root, precompile=compile_shipped, live=live)
    return Prepared(runtime, built, tree)


@contextmanager
def connect(
    workspace: Workspace, target: str, names: Sequence[str], say: Say
) -> Iterator[Connection]:
    """A Triton for one command.

    `target` is a name of mmctl.yaml, a URL, or `embedded`: the running embedded server, else a
    private one for this command with `names` built and served, which ends with the block.
    """
    if target != EMBEDDED:
        yield _remote(workspace, target)
        return
    if (running := read_server(workspace.state, EMBEDDED)) is not None:
        yield _embedded(running)
        return
    with private_server(workspace, names, say) as server:
        yield _embedded(server.info, private=True)


def _embedded(info: ServerInfo, *, private: bool = False) -> Connection:
    return Connection(
        info.grpc,
        info.http,
        grpc_headers(info.key),
        private,
        otlp=info.otlp,
        metrics=info.metrics,
        pid=info.pid,
    )


@contextmanager
def private_server(
    workspace: Workspace, names: Sequence[str], say: Say
) -> Iterator[PrivateConnection]:
    """An embedded Triton for this command alone, on free ports and a tree of its own."""
    with private_tree(workspace) as root:
        prepared = prepare(workspace, names, root, say)
        with private_triton(workspace, prepared, say) as server:
            yield PrivateConnection(
                server.grpc, server.http, server.headers, prepared.built, server.info
            )


@contextmanager
def private_triton(
    workspace: Workspace, prepared: Prepared, say: Say, *, reload_dead: bool = True
) -> Iterator[EmbeddedTriton]:
    """A private server on what was prepared, with every model loaded. Raises WorldError."""
    with EmbeddedTriton.start(
        prepared.runtime,
        prepared.tree.root,
        state=workspace.state,
        private=True,
        complete_configs=not prepared.tree.whole,
        reload_dead=reload_dead,
        say=say,
    ) as server:
        refuse_failures(server)
        yield server


def private_tree(workspace: Workspace) -> AbstractContextManager[Path]:
    """A folder for this process; those of processes that died are cleared away."""
    return private_folder(workspace.served("x").parent)


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """The same where there may be no workspace. It is not made yet."""
    for old in parent.glob("private-*"):
        if not Path(f"/proc/{old.name.removeprefix('private-')}").exists():
            shutil.rmtree(old, ignore_errors=True)
    root = parent / f"private-{os.getpid()}"
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def refuse_failures(server: EmbeddedTriton) -> None:
    """Raises WorldError naming every model that did not load, and why."""
    if failures := server.failures():
        lines = [f"{name}: {reason}" for name, reason in sorted(failures.items())]
        raise WorldError(
            "Triton could not load:\n" + "\n".join(lines),
            hint=f"read the whole log in {server.log}",
        )


def _remote(workspace: Workspace, target: str) -> Connection:
    """`grpc://host:port`, `host:port`, `compose`, or a target of mmctl.yaml."""
    if (known := workspace.targets.get(target)) is not None:
        urls = tuple(_address(url, known) for url in known.url)
        headers, tls = _headers(target, known), _tls(workspace, known)
        return Connection(urls[0], headers=headers, tls=tls, replicas=urls)
    if target == COMPOSE:
        composed = read_composed(workspace.root)
        return Connection(composed.grpc, composed.http, grpc_headers(composed.key))
    if ":" not in target:
        names = ", ".join(f"`{name}`" for name in (EMBEDDED, COMPOSE, *sorted(workspace.targets)))
        raise InputError(
            f"`{target}` is not a target of mmctl.yaml (known: {names})",
            hint="add it there, or pass an address: `--target grpc://host:8001`",
        )
    return Connection(grpc=target.removeprefix("grpc://"))


def _address(url: str, target: Target) -> str:
    """With `tls` a bare address is meant to be encrypted."""
    if target.tls is not None and "://" not in url:
        return f"grpcs://{url}"
    return url.removeprefix("grpc://") if target.tls is None else url


def _tls(workspace: Workspace, target: Target) -> Tls | None:
    if target.tls is None:
        return None
    files = target.tls.ca, target.tls.cert, target.tls.key
    return Tls(*(workspace.root / file if file else None for file in files))


def _headers(name: str, target: Target) -> dict[str, str]:
    """Headers of a target: lines `Name: value` in the variable that mmctl.yaml names."""
    if target.headers_env is None:
        return {}
    lines = os.environ.get(target.headers_env, "").splitlines()
    pairs = [line.partition(":") for line in lines if line.strip()]
    if not pairs or any(not colon for _, colon, _ in pairs):
        raise InputError(
            f"target `{name}`: the variable `{target.headers_env}` holds no headers",
            hint=f"export {target.headers_env}='authorization: Bearer ...'",
        )
    return {key.strip(): value.strip() for key, _, value in pairs}
