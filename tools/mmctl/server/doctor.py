"""What this machine lacks to run the embedded Triton, and the ways out."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mmctl.errors import InputError, WorldError
from mmctl.server import machine
from mmctl.server.docker import require_engine
from mmctl.server.info import read_server
from mmctl.server.packages import find_installer
from mmctl.server.ports import reserved
from mmctl.server.pythons import WAYS_OUT, Python, Unusable, look_at_pythons
from mmctl.server.runtime import Runtime, outdated, read_runtime, runtime_root
from mmctl.triton.providers import check_runtimes, installed_runtimes
from mmctl.workspace import Workspace

Status = Literal["ok", "missing", "note"]

PORTS = (("http", 8000), ("grpc", 8001), ("metrics", 8002))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `missing` stops the embedded Triton, `note` does not."""

    name: str
    status: Status
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Patient:
    """What the checks look at. `runtime` is None while none is installed."""

    workspace: Workspace
    runtime: Runtime | None
    pythons: tuple[Python | Unusable, ...]
    env: Mapping[str, str]
    shm: Path


def examine(
    workspace: Workspace, env: Mapping[str, str] = os.environ, shm: Path = Path("/dev/shm")
) -> tuple[Check, ...]:
    """Every check, in the order in which to mend what they find."""
    runtime = read_runtime(runtime_root(workspace))
    patient = Patient(workspace, runtime, tuple(look_at_pythons(env=env)), env, shm)
    return tuple(check(patient) for check in CHECKS)


def _architecture(_: Patient) -> Check:
    problem = machine.lacks_platform(platform.system(), platform.machine())
    return _judge("architecture", problem, "Linux on x86-64", machine.ELSEWHERE)


def _glibc(_: Patient) -> Check:
    library, version = platform.libc_ver()
    problem = machine.lacks_glibc(library, version)
    return _judge("glibc", problem, f"{library} {version}", machine.ELSEWHERE)


def _python(patient: Patient) -> Check:
    """A Python of the right version, with or without its library."""
    if patient.runtime:
        return Check("python", "ok", f"CPython {patient.runtime.version} of the runtime")
    for found in patient.pythons:
        if found.version:
            return Check("python", "ok", f"CPython {found.version} ({found.path})")
    seen = "".join(
        f"; {one.path}: {one.reason}" for one in patient.pythons if isinstance(one, Unusable)
    )
    return Check("python", "missing", f"no CPython 3.11 or 3.12{seen}", WAYS_OUT)


def _libpython(patient: Patient) -> Check:
    if patient.runtime:
        return Check("libpython", "ok", f"in {patient.runtime.libpython}")
    for found in patient.pythons:
        if isinstance(found, Python):
            return Check("libpython", "ok", f"in {found.libpython}")
    for found in patient.pythons:
        if isinstance(found, Unusable) and found.version:
            return Check("libpython", "missing", f"{found.path}: {found.reason}", WAYS_OUT)
    return Check("libpython", "missing", "it comes with a Python, and none fits", WAYS_OUT)


def _installer(patient: Patient) -> Check:
    try:
        name = find_installer()
    except WorldError as error:
        return Check("installer", "note" if patient.runtime else "missing", str(error), error.hint)
    return Check("installer", "ok", name)


def _disk(patient: Patient) -> Check:
    root = runtime_root(patient.workspace)
    needed = machine.RUNTIME_BYTES if patient.runtime is None else machine.LOG_BYTES
    hint = "free some space, or set `MMCTL_RUNTIME` to a larger disk"
    return _judge("disk", machine.lacks_space(root, needed), f"enough space at {root}", hint)


def _shm(patient: Patient) -> Check:
    problem = machine.lacks_space(patient.shm, machine.SHM_BYTES)
    if not os.access(patient.shm, os.W_OK):
        problem = f"{patient.shm} cannot be written"
    hint = "remount it larger (`mount -o remount,size=1g /dev/shm`; docker: `--shm-size=1g`)"
    return _judge("shm", problem, f"enough space in {patient.shm}", hint)


def _ports(patient: Patient) -> Check:
    """Only the usual ones: others can be given, so this never stops anybody."""
    if running := read_server(patient.workspace.state):
        return Check("ports", "ok", f"mmctl's own server uses {running.http} and {running.grpc}")
    try:
        with reserved(PORTS):
            return Check("ports", "ok", "8000, 8001 and 8002 are free")
    except WorldError as error:
        return Check("ports", "note", str(error), error.hint)


def _runtime(patient: Patient) -> Check:
    install = "run `mmctl runtime install`; commands that need it do so themselves"
    if patient.runtime is None:
        return Check("runtime", "note", "the embedded Triton is not installed yet", install)
    if reason := outdated(patient.runtime, patient.workspace):
        return Check("runtime", "note", f"it is out of date: {reason}", install)
    return Check("runtime", "ok", f"in {patient.runtime.root}")


def _docker(patient: Patient) -> Check:
    try:
        require_engine(patient.env)
    except WorldError as error:
        return Check("docker", "note", f"{error}; only `mmctl serve --docker` needs it")
    return Check("docker", "ok", "an engine answers")


def _onnxruntime(_: Patient) -> Check:
    """Of this environment, which exports; the runtime's has its own."""
    try:
        check_runtimes(installed_runtimes())
    except InputError as error:
        return Check("onnxruntime", "missing", str(error), error.hint)
    return Check("onnxruntime", "ok", "one at most in this environment")


def _judge(name: str, problem: str | None, fine: str, hint: str) -> Check:
    return Check(name, "missing", problem, hint) if problem else Check(name, "ok", fine)


CHECKS: tuple[Callable[[Patient], Check], ...] = (
    _architecture,
    _glibc,
    _python,
    _libpython,
    _installer,
    _disk,
    _shm,
    _ports,
    _runtime,
    _docker,
    _onnxruntime,
)
