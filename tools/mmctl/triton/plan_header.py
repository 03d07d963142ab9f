"""The first bytes of a TensorRT engine, which tell its version without any TensorRT."""

from __future__ import annotations

from pathlib import Path

from mmctl.errors import InputError
from mmctl.triton.releases import Version

LENGTH = 28
TAG = b"ftrt"
RTX_TAG = b"vtrt"
SIZE = slice(16, 24)
VERSION = slice(24, 28)


def read_plan_version(path: Path) -> Version:
    """Major, minor, patch and build. Raises InputError for a file that is no whole engine."""
    try:
        with path.open("rb") as file:
            header = file.read(LENGTH)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if header[:4] == RTX_TAG:
        raise InputError(
            f"{path}: an engine of TensorRT for RTX, which Triton does not load",
            hint="build it with TensorRT itself",
        )
    if header[:4] != TAG or len(header) < LENGTH:
        raise InputError(f"{path}: not a TensorRT engine: it does not begin with `ftrt`")
    if (said := int.from_bytes(header[SIZE], "little")) != size:
        raise InputError(
            f"{path}: has {size} bytes and its header says {said}", hint="copy the engine again"
        )
    return tuple(header[VERSION])
