"""A real Triton for the live tests: installed once; each server must be gone at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers import Serve, assert_gone

from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import VARIABLE, Runtime
from mmctl.workspace import read_workspace


@pytest.fixture(scope="session")
def runtime(root: Path) -> Iterator[Runtime]:
    """The embedded Triton of the checkout, or the one in MMCTL_TEST_RUNTIME, for commands too."""
    place = os.environ.get("MMCTL_TEST_RUNTIME", str(root / ".mmctl" / "runtime"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, place)
        yield ensure_runtime(read_workspace(root), print)


@pytest.fixture(scope="module")
def serve(runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts servers that end with the module at the latest and must leave nothing behind."""
    state = tmp_path_factory.mktemp("state")
    with ExitStack() as stack:

        def start(repository: Path, **options: Any) -> EmbeddedTriton:
            options = {"state": state, "private": True, **options}
            server = EmbeddedTriton.start(runtime, repository, **options)
            stack.callback(assert_gone, server.shm_prefix)
            stack.callback(server.stop)
            return server

        yield start
