"""Reading the log of a server as it is and as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from mmctl.errors import InputError
from mmctl.server.info import log_path, read_server

POLL_S = 0.2


def read_end(log: Path, count: int) -> list[str]:
    """The last `count` lines. Raises InputError when the server never ran."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        raise InputError(f"{log}: no such log", hint="run `mmctl serve` first") from None
    return lines[-count:] if count else []


def follow(state: Path, target: str) -> Iterator[str]:
    """Lines that are written from now on, until the server of the target ends."""
    with log_path(state, target).open(errors="replace") as file:
        file.seek(0, 2)
        line = ""
        while True:
            runs = read_server(state, target)
            while piece := file.readline():
                line += piece
                if line.endswith("\n"):
                    yield line.rstrip("\n")
                    line = ""
            if not runs:
                return
            time.sleep(POLL_S)
