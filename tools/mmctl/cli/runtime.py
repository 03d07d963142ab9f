"""`mmctl runtime install|info|remove`: the environment of the embedded Triton."""

from __future__ import annotations

from typing import Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json

app = typer.Typer(help="The private environment that the embedded Triton runs in.")


@app.command()
def install(
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="The CPython 3.11 or 3.12 to make a new one with."
        ),
    ] = None,
) -> None:
    """Install the embedded Triton, or bring it up to date."""
    from mmctl.server.install import ensure_runtime

    print(ensure_runtime(context.workspace(), context.say, python=python).root)


@app.command()
def info(
    json: Json = False,
) -> None:
    """Say where the runtime is and whether it is up to date (exit code 1: it is not)."""
    from mmctl.cli.render import as_json
    from mmctl.server.runtime import describe_runtime

    found = describe_runtime(context.workspace())
    if json:
        print(as_json(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    raise typer.Exit(0 if found["state"] == "ready" else 1)


@app.command()
def remove() -> None:
    """Delete the runtime; the next command that needs it installs it again."""
    from mmctl.server.install import remove_runtime
    from mmctl.server.runtime import runtime_root

    root = runtime_root(context.workspace())
    print(f"removed {root}" if remove_runtime(root) else f"{root}: there is none")
