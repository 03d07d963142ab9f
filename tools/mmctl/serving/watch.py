"""`mmctl serve --watch`: a saved file is built and loaded, or its error is told, while serving.

Who deploys to the same server meanwhile waits for a build that is under way; from then on the
server serves what was deployed, and nothing that is saved changes it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

from mmctl.building.served import Versions, ledger_path, lock_path, materialise, served_versions
from mmctl.errors import MmctlError
from mmctl.files import exclusive
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.session import Say, prepare
from mmctl.triton.repository import is_generated
from mmctl.workspace import Workspace

SOURCES = (".yaml", ".yml", ".py", ".npz", ".txt", ".json", ".onnx", ".pbtxt")
POLL_MS = 500
DEPLOYED = (
    "what this server serves was deployed to it since: it is watched no more\n"
    "hint: `mmctl deploy` brings what you change, or start `mmctl serve --watch --rebuild`"
)


def watch_and_reload(
    workspace: Workspace, names: Sequence[str], server: EmbeddedTriton, root: Path, say: Say
) -> None:
    """Returns when the server ends. A build or load that fails leaves the old version serving."""
    from watchfiles import watch

    folders = [folder for folder in (workspace.models, workspace.pipelines) if folder.is_dir()]
    live: Mapping[str, Versions] = served_versions(root)
    deployed = deployments(root)
    say(f"watching {', '.join(workspace.shown(folder) for folder in folders)}")
    for changes in watch(
        *folders,
        watch_filter=lambda _, path: is_source(workspace, Path(path)),
        stop_event=Event(),
        rust_timeout=POLL_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    ):
        if not server.alive:
            return
        if changes:
            say("changed: " + ", ".join(sorted({Path(path).name for _, path in changes})))
            with exclusive(lock_path(root), lambda: say("waiting for a deployment")):
                if deployments(root) != deployed:
                    say(DEPLOYED)
                    return
                live = rebuild(workspace, names, server, root, live, say)


def deployments(root: Path) -> int:
    """Grows with every deployment to the tree."""
    ledger = ledger_path(root)
    return ledger.stat().st_size if ledger.is_file() else 0


def rebuild(
    workspace: Workspace,
    names: Sequence[str],
    server: EmbeddedTriton,
    root: Path,
    live: Mapping[str, Versions],
    say: Say,
) -> Mapping[str, Versions]:
    """One round of build, materialise and load; the versions that are live after it.

    New versions load beside the old ones, callees first; the load of the pipeline switches; then
    the old ones go. What fails is told and changes nothing of what is live.
    """
    try:
        tree = prepare(workspace, names, root, say, live=live).tree
        for name in tree.changed:
            server.load(name)
        for name in materialise(workspace, tuple(tree.models), root).changed:
            server.load(name)
    except MmctlError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        say(f"error: {error}{hint}\nstill serving what was there before")
        return live
    say(f"loaded {', '.join(tree.changed)}" if tree.changed else "nothing to reload")
    _tell_caches(server.info.store, tree.changed, say)
    return tree.models


def _tell_caches(store: str, changed: Sequence[str], say: Say) -> None:
    """What caches keep of what was loaded anew is out of reach from now on."""
    from mmctl.cache.epochs import move_epoch

    if store and changed:
        try:
            move_epoch(store, changed)
        except MmctlError as error:
            say(f"note: {error}")


def is_source(workspace: Workspace, path: Path) -> bool:
    """Whether people write this file: not one of a version folder, nor a generated one."""
    parts = path.relative_to(workspace.root).parts
    hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
    if hidden or path.suffix not in SOURCES:
        return False
    if not path.is_relative_to(workspace.models):
        return True
    inside = path.relative_to(workspace.models).parts
    folder = workspace.models / inside[0]
    made_by_mmctl = is_generated(folder) or (folder / "model.yaml").is_file()
    in_a_version = any(part.isdigit() for part in inside[1:-1])
    return not (made_by_mmctl and (in_a_version or path.suffix == ".pbtxt"))
