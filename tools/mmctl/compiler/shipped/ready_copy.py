"""The same tensors under other names: what Triton needs where an output is also read inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def make(_options: Mapping[str, Any], _folder: Path) -> Callable[..., dict[str, Any]]:
    """Hands its inputs through; step.json says which output shows which."""

    def copy(**tensors: Any) -> dict[str, Any]:
        return tensors

    return copy
