"""`mmctl build` and `mmctl compile`: make what the workspace declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json

if TYPE_CHECKING:
    from mmctl.building.compiled import PlannedPipeline

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Models or pipelines; all by default.")
]


def build(
    names: Names = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when a committed file is stale.")
    ] = False,
    reprove: Annotated[
        bool, typer.Option("--reprove", help="Run the gates of the exports again.")
    ] = False,
    json: Json = False,
) -> None:
    """Export the models, compile the pipelines, write what is not up to date."""
    if check:
        _check(json)
        return
    from mmctl.building.build import build as build_workspace

    built = build_workspace(context.workspace(), names or [], context.say, reprove=reprove)
    _warn(built.pipelines)
    if json:
        print(as_json({"pipelines": _described(built.pipelines), "models": list(built.models)}))
        return
    for line in _lines(built.pipelines):
        print(line)


def compile_(
    names: Names = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each form.")] = False,
    json: Json = False,
) -> None:
    """Type-check pipelines and write their configs; needs no weights and no server."""
    from mmctl.building.build import compile_only

    pipelines = compile_only(context.workspace(), names or [])
    _warn(pipelines)
    if json:
        print(as_json({"pipelines": _described(pipelines)}))
        return
    for line in _lines(pipelines, explain=explain):
        print(line)


def _check(json: bool) -> None:
    from mmctl.building.drift import find_drift

    drift = find_drift(context.workspace())
    if json:
        print(as_json({"stale": drift}))
    else:
        print("\n".join(drift) if drift else "all committed files are up to date")
    if drift and not json:
        context.say("\nhint: run `mmctl build` and commit what it writes")
    raise typer.Exit(1 if drift else 0)


def _warn(pipelines: tuple[PlannedPipeline, ...]) -> None:
    for pipeline in pipelines:
        for finding in pipeline.warnings:
            context.say(finding.text())


def _lines(pipelines: tuple[PlannedPipeline, ...], *, explain: bool = False) -> list[str]:
    lines = []
    for pipeline in pipelines:
        row = _describe(pipeline)
        lines.append(
            f"{row['pipeline']}: {row['form']}, version {row['version']}, "
            f"made of {', '.join(planned.model.name for planned in pipeline.models)}"
        )
        if explain:
            lines += _explained(pipeline)
    return lines


def _explained(pipeline: PlannedPipeline) -> list[str]:
    from mmctl.server.flags import BLS_THREADS, bls_threads_flag

    compiled = pipeline.compiled
    lines = [f"  because {compiled.reason}"]
    for node in compiled.graph.nodes:
        if len(node.covers) > 1:
            lines.append(f"  one model of {', '.join(node.covers)}")
    if compiled.calls_at_once > BLS_THREADS:
        flag = bls_threads_flag(compiled.calls_at_once)
        lines.append(f"  a Triton that mmctl does not start needs {flag}")
    return lines


def _described(pipelines: tuple[PlannedPipeline, ...]) -> list[dict[str, object]]:
    return [_describe(pipeline) for pipeline in pipelines]


def _describe(pipeline: PlannedPipeline) -> dict[str, object]:
    own = pipeline.models[-1]
    return {
        "pipeline": own.model.name,
        "form": pipeline.compiled.form,
        "reason": pipeline.compiled.reason,
        "fused": [list(n.covers) for n in pipeline.compiled.graph.nodes if len(n.covers) > 1],
        "version": own.lock.version,
        "models": [planned.model.name for planned in pipeline.models],
        "calls": dict(own.calls),
    }
