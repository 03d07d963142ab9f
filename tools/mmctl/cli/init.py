"""`mmctl init`: a small workspace of the user's own, which builds, serves and answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mmctl.errors import InputError

TEMPLATE = Path(__file__).parent.parent / "templates" / "starter"
RENAMED = {"gitignore": ".gitignore"}  # a real .gitignore would hide files of the package


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="An empty or new folder.")],
) -> None:
    """Write a workspace with one model, one pipeline, one step and samples."""
    from mmctl.files import new_folder, write_bytes

    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(
            f"{directory}: exists and is not empty", hint="name a folder that does not exist yet"
        )
    if directory.exists():  # perhaps the current folder of a shell: it must stay the same one
        for path, content in _files():
            write_bytes(directory / path, content)
    else:
        with new_folder(directory.resolve()) as folder:
            for path, content in _files():
                write_bytes(folder / path, content)
    print(f"wrote a workspace to {directory}")
    print(f"next: cd {directory} && mmctl build && mmctl demo triage")


def _files() -> Iterator[tuple[Path, bytes]]:
    for source in sorted(TEMPLATE.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            target = source.relative_to(TEMPLATE)
            yield target.with_name(RENAMED.get(target.name, target.name)), source.read_bytes()
