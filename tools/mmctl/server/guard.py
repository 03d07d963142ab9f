"""A server under its supervisor: started, watched and ended from this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mmctl.files import writing_to
from mmctl.server import supervisor
from mmctl.server.launch import Launch

KILL_TIMEOUT_S = 10.0


class Guard:
    """The supervisor and what it supervises. They end with `end()` or with this process."""

    def __init__(self, launch: Launch, log: Path, state: Path | None, grace_s: float) -> None:
        """Starts the server. `state` is a file that goes when it ends; `grace_s` is how long the
        server may take to end by itself, 0 for at once.
        """
        self._shm_prefix = launch.shm_prefix
        self._grace_s = grace_s
        spec = {
            "argv": launch.argv,
            "env": dict(launch.env),
            "log": str(log),
            "shm_prefix": launch.shm_prefix,
            "cleanup": launch.cleanup,
            "state": str(state) if state else None,
            "grace_s": grace_s,
        }
        with writing_to(log):
            file = log.open("ab")
        with file:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int:
        """How the server ended: 0 when it was asked to, 128 and more for a signal."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def server_pid(self) -> int | None:
        """The server itself, while it runs."""
        return next(iter(supervisor.children_of(self.pid)), None)

    def end(self, *, at_once: bool = False) -> None:
        """End the server; with `at_once` or a second Ctrl-C it gets no time to do so itself."""
        line = self._process.stdin
        assert line is not None
        with contextlib.suppress(BrokenPipeError):
            if at_once and not line.closed:
                line.write(supervisor.AT_ONCE)
            line.close()
        try:
            self._wait(self._grace_s + 30)
        except KeyboardInterrupt:
            self._process.terminate()
            self._wait(10)
        finally:
            self._end_what_is_left()

    def _wait(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def _end_what_is_left(self) -> None:
        """For a supervisor that was killed: the prefix, ours alone, tells what belonged to it."""
        self._process.kill()
        self._process.wait()
        if self._shm_prefix:
            _kill_all_with(self._shm_prefix)
            supervisor.remove_regions(self._shm_prefix)


def _kill_all_with(word: str) -> None:
    """Returns when they are gone: a large process takes its time to die of SIGKILL, too."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while (pids := processes_with(word)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes_with(word: str) -> list[int]:
    """Processes that have `word` in their command line, this one left out."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in command.read_bytes() and int(command.parent.name) != os.getpid():
                found.append(int(command.parent.name))
    return found
