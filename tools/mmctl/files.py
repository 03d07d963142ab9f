"""Writing files so that nothing is ever half-written or leaves its folder, and hashing them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from mmctl.errors import InputError, WorldError

NAME_BYTES = 255
PATH_BYTES = 3072
"""What disks take for one name, and what is left for a path inside a folder of theirs."""


def is_inside(path: str) -> bool:
    """Whether a path that a config, a listing, a lock or a server names stays in its folder,
    wherever that is, and could be there. Links are not followed.
    """
    try:
        sizes = [len(part.encode()) for part in path.split("/")]
    except UnicodeEncodeError:
        return False
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and not path.startswith("/")
        and ".." not in parts
        and "\0" not in path
        and max(sizes) <= NAME_BYTES
        and sum(sizes) <= PATH_BYTES
    )


def inside(folder: Path, path: str, *, where: str = "") -> Path:
    """The path in the folder. Raises InputError for one that leads out of it, or that no disk has;
    `where` says who names it.
    """
    if not is_inside(path):
        shown = path if len(path) <= 60 else f"{path[:60]}..."
        raise InputError(
            f"{where or folder}: {shown!r} is no path inside the folder",
            hint="name a file in the folder, by a path without `..`",
        )
    return folder / path


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turns what the disk can do wrong into one clear error that names `path`."""
    try:
        yield
    except OSError as error:
        raise WorldError(
            f"{path}: cannot write: {error.strerror or error}",
            hint="check free space and permissions; what was there before is unchanged",
        ) from error


def write_text(path: Path, text: str, *, mode: int = 0o644) -> bool:
    """Write `text` unless the file has it already; whole or not at all. True if it wrote."""
    return write_bytes(path, text.encode(), mode=mode)


def write_bytes(path: Path, content: bytes, *, mode: int = 0o644) -> bool:
    if path.is_file() and path.read_bytes() == content:
        return False
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, mode)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return True


def write_json(path: Path, value: object, *, mode: int = 0o644) -> bool:
    return write_text(path, render_json(value), mode=mode)


def render_json(value: object) -> str:
    """Sorted keys and a final newline: equal values give equal bytes."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def read_text(path: Path) -> str:
    """Text of a user's file. Raises InputError when it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A temporary folder beside `final` that becomes `final` when the block succeeds.

    On any failure (Ctrl-C included) it is removed and `final` does not exist.
    """
    with writing_to(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}."))
    try:
        temporary.chmod(0o755)
        yield temporary
        with writing_to(final):
            os.replace(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """One process at a time: holds a lock on `path`; calls `on_wait` once if it must wait."""
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where the disk allows one, else a copy. For files that never change."""
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


def copy(source: Path, target: Path) -> None:
    """A copy with a fresh modification time, by which Triton sees that it is new."""
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(parts: Mapping[str, object]) -> str:
    """SHA-256 over named parts; their order does not matter. Values must be JSON."""
    return hashlib.sha256(render_json(dict(parts)).encode()).hexdigest()
