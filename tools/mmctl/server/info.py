"""The file that says that a server of a workspace runs, and where."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mmctl.errors import WorldError
from mmctl.files import inside, write_json
from mmctl.server.supervisor import has_ended

EMBEDDED = "embedded"
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running server: the process that answers for it, and addresses as host:port.

    `otlp` is where it sends traces: nobody listens there until somebody wants them. `key` is what
    it wants to be steered with. `store` is the address of the shared store that was started with
    it, its password in it; empty where there is none. `bls_threads` is how many calls each of its
    Python models may have under way; an mmctl before this one does not say.
    """

    pid: int
    http: str
    grpc: str
    metrics: str
    otlp: str
    served: str
    release: str
    started: str
    key: str = field(default="", repr=False)
    store: str = field(default="", repr=False)
    bls_threads: int | None = None

    @property
    def shown(self) -> dict[str, object]:
        """What may be printed: all but the key."""
        return {name: value for name, value in asdict(self).items() if name != "key"}


def info_path(state: Path, target: str) -> Path:
    return inside(state / "servers", f"{target}.json")


def log_path(state: Path, target: str) -> Path:
    return inside(state / "servers", f"{target}.log")


def read_server(state: Path, target: str = EMBEDDED) -> ServerInfo | None:
    """The running server of a target; None, and its file removed, when it runs no more."""
    path = info_path(state, target)
    try:
        info = ServerInfo(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if _answers_for_a_server(info.pid):
        return info
    path.unlink(missing_ok=True)
    return None


def write_server(state: Path, target: str, info: ServerInfo) -> None:
    """Only its owner may read the file: it holds the key."""
    write_json(info_path(state, target), asdict(info), mode=0o600)


def stop_server(info: ServerInfo) -> None:
    """End a server and wait until it has. Raises WorldError when it does not end."""
    os.kill(info.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not has_ended(info.pid):
        if time.monotonic() > deadline:
            raise WorldError(
                f"the server (process {info.pid}) does not end",
                hint=f"end it with `kill -9 {info.pid}`; its own guard clears up behind it",
            )
        time.sleep(0.05)


def _answers_for_a_server(pid: int) -> bool:
    """Whether the process is one of our supervisors, not another that was given its number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"supervisor.py" in command and not has_ended(pid)
