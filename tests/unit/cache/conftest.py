"""Real stores for the tests of caches; each test begins with an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cache_servers import empty_store

from mmctl.cache.stores.redis import SharedStore


@pytest.fixture
def store(store_url: str) -> Iterator[SharedStore]:
    """An empty store."""
    with empty_store(store_url) as shared:
        yield shared
