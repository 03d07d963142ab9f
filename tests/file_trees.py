"""Folders of small files, as tests write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, str | bytes]
"""Path below the folder -> content; a path that ends with `/` is an empty folder."""


def write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
