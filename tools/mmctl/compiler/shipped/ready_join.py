"""The ready-made step `join`: strings with a separator between them, numbers on the last axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def make(options: Mapping[str, Any], _folder: Path) -> Callable[..., dict[str, Any]]:
    """`f(a, b, ...)` -> joined, in the order of its arguments."""
    separator: str = options["separator"]

    def join(**parts: Any) -> dict[str, Any]:
        arrays = list(parts.values())
        if arrays[0].dtype == object:
            rows = [separator.join(texts) for texts in zip(*arrays, strict=True)]
            return {"joined": np.array(rows, dtype=object)}
        columns = [array[:, None] if array.ndim == 1 else array for array in arrays]
        return {"joined": np.concatenate(columns, axis=-1)}

    return join
