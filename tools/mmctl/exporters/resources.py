"""Where a source's files are: beside model.yaml, in a model package, or at an https address."""

from __future__ import annotations

import http.client
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from mmctl.errors import InputError, WorldError
from mmctl.exporters.base import Place, Say
from mmctl.exporters.packages import PREFIX, resolve
from mmctl.files import sha256_file, writing_to

HTTPS = "https://"
CHUNK_BYTES = 1024 * 1024
WAIT_S = 60

NOT_SOURCES = {"model.yaml", "model.lock", "config.pbtxt"}


def is_remote(address: str) -> bool:
    """Whether the address is not a path, so that its content must be declared by hash."""
    return address.startswith((PREFIX, HTTPS))


def locate_file(place: Place, address: str, sha256: str | None, say: Say) -> Path:
    """The file at `address`, downloaded if need be; a declared hash is verified."""
    if address.startswith(HTTPS):
        assert sha256 is not None, "model.yaml cannot be read without it"
        return _download(place, address, sha256, say)
    path = existing_file(place, address)
    if sha256 is not None:
        verify(place, address, path, sha256)
    return path


def locate(place: Place, address: str) -> Path:
    """The path of a local address or package resource; raises InputError when it is not there."""
    if address.startswith(PREFIX):
        return resolve(place.workspace, address)
    path = place.folder / address
    if not path.exists():
        raise InputError(
            f"{place.shown}: `{address}` does not exist",
            hint="paths in model.yaml are relative to its folder",
        )
    return path


def existing_file(place: Place, address: str) -> Path:
    """As `locate`, for a file."""
    path = locate(place, address)
    if not path.is_file():
        raise InputError(f"{place.shown}: `{address}` is not a file")
    return path


def verify(place: Place, address: str, path: Path, sha256: str) -> None:
    found = sha256_file(path)
    if found != sha256:
        raise InputError(
            f"{place.shown}: `{address}` has sha256 {found}, model.yaml says {sha256}",
            hint="find out which of the two is right before you change model.yaml",
        )


def own_files(place: Place) -> dict[str, str]:
    """SHA-256 of what people wrote into the model's folder, by path: code, arrays, word lists.

    Left out: model.yaml, which is compared by meaning, what mmctl generates, and prose.
    """
    found = {}
    for path in sorted(place.folder.rglob("*")):
        inside = path.relative_to(place.folder)
        if path.is_file() and _is_source(inside):
            found[inside.as_posix()] = sha256_file(path)
    return found


def _is_source(inside: Path) -> bool:
    top = inside.parts[0]
    if inside.name.startswith(".") or inside.suffix in (".md", ".pyc"):
        return False
    if any(part.startswith(".") or part == "__pycache__" for part in inside.parts[:-1]):
        return False
    if len(inside.parts) == 1:
        return top not in NOT_SOURCES
    return top != "configs" and not top.isdigit()


def _download(place: Place, address: str, sha256: str, say: Say) -> Path:
    """The file with this hash, kept under it: one that is there is never asked for again."""
    target = place.workspace.state / "downloads" / sha256
    if target.is_file():
        return target
    say(f"{place.name}: downloading {address}")
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".download.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in _chunks_of(place, address):
                with writing_to(target):
                    file.write(chunk)
        verify(place, address, temporary, sha256)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _chunks_of(place: Place, address: str) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
            while chunk := answer.read(CHUNK_BYTES):
                yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise WorldError(
            f"{place.shown}: cannot download {address}: {error}",
            hint="check the address and the network; nothing was kept",
        ) from error
