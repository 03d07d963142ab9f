"""`mmctl engine`: a TensorRT engine for a model, built here or planned for where a GPU is."""

from __future__ import annotations

from typing import Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json


def engine(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder of model_repository/.")],
    target: Annotated[
        str | None, typer.Option("--target", help="The Triton it is for, of mmctl.yaml.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Say what would be built, and with what command.")
    ] = False,
    json: Json = False,
) -> None:
    """Build a TensorRT engine from the model's ONNX file, and check that its target loads it.

    Without a GPU nothing is built: what to build is written down, with the command.
    """
    from mmctl.exporters.tensorrt.engine import (
        build_engine,
        plan_engine,
        shown_command,
        write_plan,
    )

    workspace = context.workspace()
    planned = plan_engine(workspace, model, target)
    if plan_only:
        path, done = write_plan(planned), "planned"
    else:
        path, done = build_engine(planned, context.say).path, "built"
    if json:
        print(as_json({"model": model, done: str(path), "command": list(planned.command)}))
        return
    print(f"{model}: {done} {workspace.shown(path)}")
    if plan_only:
        print(f"  {shown_command(planned)}")
