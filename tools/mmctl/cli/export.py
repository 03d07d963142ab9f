"""`mmctl export` and `mmctl fetch`: from a model's source to a proven version of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.exporters import ExportOutcome


def export(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Folders of model_repository/.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Export every model.")] = False,
    reprove: Annotated[
        bool, typer.Option("--reprove", help="Export again and measure the gates anew.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Accept a precision that is not faster; never a wrong one."),
    ] = False,
    json: Json = False,
) -> None:
    """Export models to ONNX, prove them equal to their source, write lock and config.

    Another precision than fp32 is accepted when it is as good on held-out samples and faster.
    Nothing runs for a model whose version is there already.
    """
    from mmctl.exporters import export_models, exportable_names

    workspace = context.workspace()
    if bool(models) == every:
        raise InputError("name the models to export, or pass --all")
    names = exportable_names(workspace) if every else models or []
    outcomes = export_models(workspace, names, reprove=reprove, force=force, say=context.say)
    if json:
        print(as_json({"models": [_described(outcome) for outcome in outcomes]}))
        return
    for outcome in outcomes:
        print(_line(outcome))


def fetch(json: Json = False) -> None:
    """Install the model packages that model_repository/packages.txt pins into .mmctl/packages."""
    from mmctl.exporters.packages import fetch as fetch_packages

    fetched = fetch_packages(context.workspace(), context.say)
    if json:
        print(as_json({"packages": list(fetched.packages), "changed": fetched.changed}))
        return
    for package in fetched.packages:
        print(f"{package}: {'fetched' if fetched.changed else 'up to date'}")


def _line(outcome: ExportOutcome) -> str:
    done = f"exported in {outcome.seconds:.0f} s" if outcome.changed else "up to date"
    shown = [_measured(gate) for gate in outcome.lock.evidence]
    return f"{outcome.name}: version {outcome.version}, {', '.join((done, *filter(None, shown)))}"


def _measured(gate: Mapping[str, Any]) -> str:
    """What a gate measured, in three words; "" where that is only yes or no."""
    if "max_difference" in gate:
        return f"{gate['gate']} {gate['max_difference']:.1g}"
    if "drop_points" in gate:
        return f"{gate['metric']} fell by {gate['drop_points']:.2g} points"
    if gate["gate"] == "accuracy":
        return f"{gate['metric']} {gate['value']:.4g}"
    if "ratios" in gate:
        return f"{max(row['cpu'] for row in gate['ratios']):.2f} of FP32's CPU time"
    return ""


def _described(outcome: ExportOutcome) -> dict[str, object]:
    lock = outcome.lock
    return {
        "model": outcome.name,
        "version": outcome.version,
        "build_key": lock.build_key,
        "changed": outcome.changed,
        "seconds": round(outcome.seconds, 1),
        "inputs": [str(spec) for spec in lock.signature.inputs],
        "outputs": [str(spec) for spec in lock.signature.outputs],
        "evidence": [dict(gate) for gate in lock.evidence],
    }
