"""What it takes to start a server, whichever kind it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line and what it may leave behind. `env` is added to the variables there are.

    `shm_prefix` begins the names of the server's shared memory on this machine (empty: it has
    none here). `cleanup` is a command that ends what killing the process does not.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    release: str
    shm_prefix: str = ""
    cleanup: tuple[str, ...] = ()
