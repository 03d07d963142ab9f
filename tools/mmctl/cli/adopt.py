"""`mmctl adopt REPO`: pipelines from the ensembles of a Triton repository, proven equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json
from mmctl.errors import InputError, Refused

if TYPE_CHECKING:
    from mmctl.building.adopt import Adoption, Plan
    from mmctl.compiler.adopt import Difference


def adopt(
    repository: Annotated[
        Path, typer.Argument(metavar="REPO", help="A Triton model repository; may be this one.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ENSEMBLE...", help="These; all by default.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written, and stop.")
    ] = False,
    link: Annotated[
        bool, typer.Option("--link", help="Hard links instead of copies of the called models.")
    ] = False,
    json: Json = False,
) -> None:
    """Turn ensembles into pipelines that compile to them: proven equal, or refused with why."""
    from mmctl.building.adopt import adopt as write
    from mmctl.building.adopt import plan_adoption

    workspace = context.workspace()
    if json and not (yes or dry_run):
        raise InputError("`--json` cannot ask", hint="add `--yes`, or `--dry-run`")
    plan = plan_adoption(workspace, repository, names or [])
    if plan.refused and not json:
        raise _refusal(plan)
    if not json:
        print("\n".join(_lines(plan, texts=dry_run)))
    writes = bool(plan.adoptions) and not plan.refused and not dry_run
    if writes:
        if not yes:
            context.confirm("write this?", "add `--yes`, or `--dry-run`")
        write(workspace, plan, context.say, link=link)
    if json:
        print(as_json(_values(plan, written=writes)))
    elif writes:
        print("next: mmctl build")
    if plan.refused:
        raise typer.Exit(1)


def _refusal(plan: Plan) -> Refused:
    lines = [f"nothing was written: {_names(plan.refused)} cannot be adopted"]
    lines += [d.text() for adoption in plan.refused for d in adoption.differences]
    right = [adoption.name for adoption in plan.adoptions if adoption not in plan.refused]
    hint = f"adopt the others alone: mmctl adopt {plan.shown} {' '.join(right)}" if right else None
    return Refused("\n".join(lines), hint=hint)


def _names(adoptions: tuple[Adoption, ...]) -> str:
    return ", ".join(f"`{adoption.name}`" for adoption in adoptions)


def _lines(plan: Plan, *, texts: bool) -> Iterator[str]:
    """The plan as a person reads it; with `texts` the files too."""
    for adoption in plan.adoptions:
        adopted = adoption.adopted
        yield (
            f"{adoption.name}: ensembles/{adoption.name}/pipeline.yaml, "
            f"{_count(len(adopted.nodes), 'node')}, equal to {adoption.model.shown}/config.pbtxt"
        )
        for copy in adopted.copies:
            yield (
                f"  but for a step more, {copy}, which copies tensors: without it Triton answers "
                "`unexpected deadlock` to a request for some of the outputs"
            )
        for warning in adopted.warnings:
            yield f"  {warning.code} {warning.message}"
        if texts:
            yield from (f"  | {line}".rstrip() for line in adopted.text.splitlines())
    for folder in plan.copies:
        yield (
            f"{folder.name}: copied to model_repository/, {_count(len(folder.files), 'file')}, "
            f"{_size(folder.size_bytes)}"
        )
    if plan.own:
        for adoption in plan.adoptions:
            yield (
                f"{adoption.model.shown}: replaced by what the pipeline compiles to, its config "
                f"kept as ensembles/{adoption.name}/adopted.pbtxt"
            )
    yield from (f"note: {note}" for note in plan.notes)
    yield from (f"{name}: adopted before" for name in plan.already)
    if not plan.adoptions:
        yield f"nothing to adopt in {plan.shown}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"


def _values(plan: Plan, *, written: bool) -> dict[str, object]:
    fine = [adoption for adoption in plan.adoptions if adoption not in plan.refused]
    return {
        "repository": plan.shown,
        "written": written,
        "adopted": [_adoption_values(adoption) for adoption in fine],
        "copied": [
            {"model": folder.name, "files": len(folder.files), "bytes": folder.size_bytes}
            for folder in plan.copies
        ],
        "already": list(plan.already),
        "notes": list(plan.notes),
        "refused": [
            {"ensemble": a.name, "differences": [_difference_values(d) for d in a.differences]}
            for a in plan.refused
        ],
    }


def _adoption_values(adoption: Adoption) -> dict[str, object]:
    adopted = adoption.adopted
    return {
        "pipeline": adoption.name,
        "file": f"ensembles/{adoption.name}/pipeline.yaml",
        "text": adopted.text,
        "nodes": dict(zip(adopted.nodes, adopted.models, strict=True)),
        "copies": list(adopted.copies),
        "warnings": [warning.as_json() for warning in adopted.warnings],
    }


def _difference_values(difference: Difference) -> dict[str, object]:
    at = difference.at
    return {
        "path": at.path,
        "line": at.line,
        "column": at.column,
        "field": difference.field,
        "message": difference.message,
        "hint": difference.hint,
    }
