"""mmctl: multi-model pipelines, compiled to NVIDIA Triton Inference Server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmctl.building.check import check
    from mmctl.cache.cache import Cache
    from mmctl.client.aio import AsyncClient
    from mmctl.client.client import Client
    from mmctl.client.tls import Tls
    from mmctl.errors import InferenceError
    from mmctl.server.process import EmbeddedTriton

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Cache",
    "Client",
    "EmbeddedTriton",
    "InferenceError",
    "Tls",
    "__version__",
    "check",
]

_HOMES = {
    "AsyncClient": "mmctl.client.aio",
    "Cache": "mmctl.cache.cache",
    "Client": "mmctl.client.client",
    "EmbeddedTriton": "mmctl.server.process",
    "InferenceError": "mmctl.errors",
    "Tls": "mmctl.client.tls",
    "check": "mmctl.building.check",
}


def __getattr__(name: str) -> object:
    """The public names, imported when first asked for: `import mmctl` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module `mmctl` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
