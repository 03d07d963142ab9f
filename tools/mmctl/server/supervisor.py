"""Runs one server so that nothing of it outlives it. Run by path, so standard library only.

It ends the server when its standard input closes (its parent died or asked for it), when its
parent changes, or on a signal. When the server has ended, by itself or not, what the server left
behind goes too: its children, its shared memory, the file that says that it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SHM = Path("/dev/shm")
AT_ONCE = b"!"
"""What the parent writes when the server shall get no time to end by itself."""

CHECK_S = 1.0
"""How often to look whether the parent is still the same."""


def main() -> int:
    spec = json.loads(sys.argv[1])
    # Orphans of the server become our children, so that none of them can be overlooked.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = _signals_as_file()
    try:
        return _run(spec, wake)
    finally:
        _end_children()
        with contextlib.suppress(OSError):
            if spec["cleanup"]:
                subprocess.run(spec["cleanup"], check=False, capture_output=True, timeout=30)
        remove_regions(spec["shm_prefix"])
        if spec["state"]:
            Path(spec["state"]).unlink(missing_ok=True)


def _run(spec: dict[str, Any], wake: int) -> int:
    """The server's exit code (128 + signal number as in a shell), or 0 when it was asked to end."""
    with open(spec["log"], "ab") as log:
        try:
            server = _start(spec, log)
        except OSError as error:
            log.write(f"cannot start {spec['argv'][0]}: {error}\n".encode())
            return 127
        if _ended_by_itself(server, wake, os.getppid()):
            code = server.wait()
            return code if code >= 0 else 128 - code
        if not _in_a_hurry():
            _end(server, wake, spec["grace_s"])
    return 0


def _start(spec: dict[str, Any], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        spec["argv"],
        env={**os.environ, **spec["env"]},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
    )


def _end_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _ended_by_itself(server: subprocess.Popen[bytes], wake: int, parent: int) -> bool:
    """Waits for the first of: the server ends, standard input closes, a signal, a new parent."""
    ended = os.pidfd_open(server.pid)
    watched = [ended, wake, sys.stdin.fileno()]
    while os.getppid() == parent:
        ready, _, _ = select.select(watched, [], [], CHECK_S)
        if ready:
            return ended in ready
    return False


def _in_a_hurry() -> bool:
    """Whether the parent has said so before it closed our standard input."""
    readable = select.select([sys.stdin], [], [], 0)[0]
    return bool(readable) and os.read(sys.stdin.fileno(), 1) == AT_ONCE


def _end(server: subprocess.Popen[bytes], wake: int, grace_s: float) -> None:
    """Ask the server to end, and leave it `grace_s` for it; a second signal cuts that short."""
    if grace_s <= 0:
        return
    _drain(wake)
    server.terminate()
    ended = os.pidfd_open(server.pid)
    select.select([ended, wake], [], [], grace_s)


def _end_children() -> None:
    """Kill every child until there is none: an ended child hands its own children to us."""
    while children := children_of(os.getpid()):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def children_of(parent: int) -> list[int]:
    """Direct children of a process, those that have ended but are not yet waited for included."""
    return [pid for pid, fields in _processes() if int(fields[1]) == parent]


def has_ended(pid: int) -> bool:
    try:
        return _stat(pid)[0] in "ZX"
    except OSError:
        return True


def remove_regions(prefix: str) -> None:
    """Delete the shared memory of a server; `prefix` is its own."""
    if prefix:
        for region in SHM.glob(f"{prefix}*"):
            region.unlink(missing_ok=True)


def _processes() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry), _stat(int(entry))


def _stat(pid: int) -> list[str]:
    """State, parent, ... of a process: what follows its name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _signals_as_file() -> int:
    """A file descriptor that is readable once SIGTERM, SIGINT or SIGHUP has arrived."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _drain(wake: int) -> None:
    while select.select([wake], [], [], 0)[0]:
        os.read(wake, 64)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
