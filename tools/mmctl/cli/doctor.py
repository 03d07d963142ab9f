"""`mmctl doctor`: what this machine lacks."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json

if TYPE_CHECKING:
    from mmctl.server.doctor import Check


def doctor(json: Json = False) -> None:
    """Say what this machine lacks to run the embedded Triton."""
    from mmctl.server.doctor import examine

    checks = examine(context.workspace())
    able = all(check.status != "missing" for check in checks)
    if json:
        print(as_json({"able": able, "checks": [asdict(check) for check in checks]}))
    else:
        print("\n".join(line for check in checks for line in _lines(check)))
    raise typer.Exit(0 if able else 3)


def _lines(check: Check) -> list[str]:
    line = f"{check.status:<8} {check.name:<13} {check.message}"
    return [line, f"{'':<22} hint: {check.hint}"] if check.hint else [line]
