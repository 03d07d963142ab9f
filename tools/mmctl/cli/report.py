"""`--html FILE` of `mmctl bench` and `mmctl trace`: the results as a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mmctl.cli import context
from mmctl.errors import InputError

HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write the result as a page, too: one file, no network."
    ),
]


def refuse_unreportable(html: Path | None) -> None:
    """Before the load, not after it. Raises InputError."""
    from mmctl.loadtest.report.plots import refuse_missing

    if html is None:
        return
    if html.is_dir():
        raise InputError(f"{html} is a folder", hint=f"name the file: `--html {html}/report.html`")
    refuse_unwritable("--html", html)
    refuse_missing()


def refuse_unwritable(option: str, file: Path | None) -> None:
    """Before the load, not after it. Raises InputError."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise InputError(
            f"`{option} {file}` cannot be written", hint="name a file in a folder there is"
        )


def write_report(
    html: Path, bench: Mapping[str, Any] | None, trace: Mapping[str, Any] | None
) -> None:
    from mmctl.files import write_text
    from mmctl.loadtest.report.contents import render_report

    write_text(html, render_report(bench, trace))
    context.say(f"{html} is written")
