"""Real stores for the tests of caches; each test begins with an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mmctl.cache.stores.redis import SharedStore


@pytest.fixture
def store(store_url: str) -> Iterator[SharedStore]:
    """An empty store."""
    shared = SharedStore(store_url)
    shared.run(("FLUSHALL",))
    yield shared
    shared.close()
