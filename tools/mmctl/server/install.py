"""Installing the embedded Triton's environment: whole or not at all, and only what is needed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from mmctl.errors import WorldError
from mmctl.files import exclusive, read_text, sha256_file, write_json, write_text, writing_to
from mmctl.server.machine import RUNTIME_BYTES, lacks_space, require_platform
from mmctl.server.packages import install_packages, make_environment
from mmctl.server.pythons import Python, find_python
from mmctl.server.runtime import (
    LOCK,
    SCHEMA,
    STAMP,
    VARIABLE,
    Runtime,
    outdated,
    read_runtime,
    repinned,
    requirement_files,
    runtime_below,
    runtime_root,
)
from mmctl.triton.releases import EMBEDDED as RELEASE
from mmctl.workspace import Workspace

Say = Callable[[str], None]

MARKER = ".mmctl-runtime"
"""Tells a runtime of mmctl, finished or not, from a folder that somebody else filled."""

PLAIN_NAMES = {"libcudart-*.so.12*": "libcudart.so.12", "libb64-*.so.0d": "libb64.so.0d"}
"""Libraries that perf_analyzer looks for by names that the server's wheel has mangled."""


def ensure_runtime(workspace: Workspace, say: Say, *, python: str | None = None) -> Runtime:
    """The runtime of the workspace, installed or brought up to date where it must be.

    `python` names the interpreter for a new one. Raises WorldError when the machine cannot run
    the embedded Triton or the packages cannot be installed; then the old state is kept.
    """
    root = runtime_root(workspace)
    if python is None and (there := _ready(root, workspace)):
        return there
    with _installing(root, say):
        if python is None and (there := _ready(root, workspace)):
            return there
        return _add_requirements(_install(root, python, say), workspace, say)


def ensure_bare_runtime(state: Path, say: Say) -> Runtime:
    """The same without a workspace: `state` is where its private state is or would be, and what
    pipelines ask for plays no part.
    """
    root = runtime_below(state)
    if (there := read_runtime(root)) and not repinned(there):
        return there
    with _installing(root, say):
        return _install(root, None, say)


def remove_runtime(root: Path) -> bool:
    """Delete a runtime, or what is left of one; False when there is none."""
    if not root.exists():
        return False
    if not (root / MARKER).exists():
        raise WorldError(
            f"{root}: this is not a runtime of mmctl",
            hint=f"check `{VARIABLE}`, or delete it yourself",
        )
    with writing_to(root):
        (root / STAMP).unlink(missing_ok=True)  # first: what is left over must not count
        shutil.rmtree(root)
    return True


def _ready(root: Path, workspace: Workspace) -> Runtime | None:
    there = read_runtime(root)
    return there if there and not outdated(there, workspace) else None


def _installing(root: Path, say: Say) -> AbstractContextManager[None]:
    return exclusive(root.parent / f".{root.name}.lock", lambda: say("waiting for another install"))


def _install(root: Path, wanted: str | None, say: Say) -> Runtime:
    """What the lock pins, in a new environment unless there is one."""
    old = read_runtime(root)
    if old and not repinned(old) and wanted is None:
        return old
    require_platform()
    python = find_python(wanted)
    if root.is_dir() and any(root.iterdir()):
        remove_runtime(root)
    if problem := lacks_space(root, RUNTIME_BYTES):
        raise WorldError(problem, hint=f"free some space, or set `{VARIABLE}` to a larger disk")
    say(f"installing the embedded Triton {RELEASE} for Python {python.version} into {root}")
    say("  about 120 MB to download, 350 MB on the disk")
    try:
        return _stamp(_create(root, python, say))
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise


def _create(root: Path, python: Python, say: Say) -> Runtime:
    """A new environment with what the lock pins. Marked as ours before there is anything in it."""
    write_text(root / MARKER, "")
    make_environment(python.path, root)
    runtime = Runtime(root, python.version, python.libpython, sha256_file(LOCK), {})
    pins = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK)]
    install_packages(runtime.python, pins, say)
    with writing_to(root):
        _keep_what_is_needed(runtime)
    return runtime


def _add_requirements(runtime: Runtime, workspace: Workspace, say: Say) -> Runtime:
    """Install what pipelines ask for, never moving a pinned package."""
    constraints = runtime.root / "constraints.txt"
    write_text(constraints, _constraints(read_text(LOCK)))
    for pipeline, file in requirement_files(workspace).items():
        digest = sha256_file(file)
        if runtime.requirements.get(pipeline) != digest:
            what = f"what `{workspace.shown(file)}` names"
            say(f"installing {what}")
            pins = ["-c", str(constraints), "-r", str(file)]
            install_packages(runtime.python, pins, say, what=what)
            requirements = {**runtime.requirements, pipeline: digest}
            runtime = _stamp(replace(runtime, requirements=requirements))
    return runtime


def _stamp(runtime: Runtime) -> Runtime:
    """Say on the disk that the runtime is whole, and what is in it."""
    stamp = {
        "schema": SCHEMA,
        "python": runtime.version,
        "libpython": str(runtime.libpython),
        "lock": runtime.lock,
        "requirements": dict(runtime.requirements),
    }
    write_json(runtime.root / STAMP, stamp)
    return runtime


def _constraints(lock: str) -> str:
    """The lock's pins without their hashes."""
    lines = (line.removesuffix("\\").strip() for line in lock.splitlines() if line[:1].isalpha())
    return "".join(f"{line}\n" for line in lines)


def _keep_what_is_needed(runtime: Runtime) -> None:
    """Of the two Triton wheels only the server and perf_analyzer stay, for one Python."""
    for path in runtime.triton.parent.iterdir():
        if path != runtime.triton:
            _remove(path)
    for path in runtime.packages.glob("triton*"):
        if path.is_dir() and not path.name.endswith(".dist-info"):
            _remove(path)
    for path in runtime.stub.parent.parent.iterdir():
        if path != runtime.stub.parent:
            _remove(path)
    _remove(runtime.root / "bin" / "perf_client")
    for program in (runtime.tritonserver, runtime.stub, runtime.perf_analyzer):
        program.chmod(0o755)
    for pattern, plain in PLAIN_NAMES.items():
        for library in runtime.libs.glob(pattern):
            (runtime.libs / plain).symlink_to(library.name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
