"""What tests of real servers share."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from mmctl.server.guard import processes_with
from mmctl.server.process import EmbeddedTriton


class Serve(Protocol):
    """The fixture `serve`: a server on a repository; options are those of EmbeddedTriton.start."""

    def __call__(self, repository: Path, **options: Any) -> EmbeddedTriton: ...


def assert_gone(shm_prefix: str) -> None:
    """No process and no shared memory of a server: both carry the prefix that is its own."""
    assert processes_with(shm_prefix) == []
    assert list(Path("/dev/shm").glob(f"{shm_prefix}*")) == []


def executions(triton: EmbeddedTriton, model: str) -> tuple[int, int]:
    """How many rows a model served, in how many executions."""
    url = f"http://{triton.http}/v2/models/{model}/stats"
    with urllib.request.urlopen(url, timeout=10) as answer:
        [stats] = json.load(answer)["model_stats"]
    return stats["inference_count"], stats["execution_count"]
