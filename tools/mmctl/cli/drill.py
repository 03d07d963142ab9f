"""`mmctl drill PIPELINE`: make each node slow, dead or wrong, and see what the answer does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json
from mmctl.cli.samples import samples_of
from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.trials.faults import Fault

if TYPE_CHECKING:
    from mmctl.pipeline.graph import Form, Graph, Node
    from mmctl.trials.rows import Row

HEAD = ("node", "fault", "promised", "got", "ms", "bound", "verdict")
MOST_CHARACTERS = 60


def drill(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline with samples.")],
    node: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this node; may be repeated.")
    ] = None,
    fault: Annotated[
        list[Fault] | None, typer.Option(help="Only this fault; may be repeated.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Times must be kept within 5 % and 10 ms.")
    ] = False,
    json: Json = False,
) -> None:
    """Let each node of a pipeline fail in turn, and check what its declaration promises."""
    from mmctl.trials.drill import drill as run
    from mmctl.trials.promises import NORMAL, STRICT
    from mmctl.trials.requests import single_rows
    from mmctl.trials.rig import open_rig
    from mmctl.trials.rows import Verdict

    workspace = context.workspace()
    samples = samples_of(workspace, pipeline, models=False, option=False)
    wanted = node or []
    with open_rig(
        workspace, pipeline, context.say, lambda graph: _refuse_unknown(wanted, graph)
    ) as rig:
        singles = single_rows(pipeline, samples, rig.client.signature(pipeline))
        nodes = _chosen(wanted, rig.graph, rig.form)
        slack = STRICT if strict else NORMAL
        rows = list(run(rig, singles, nodes, fault or list(Fault), context.say, slack))
        form = rig.form
    if json:
        print(as_json(_as_values(pipeline, form, rows)))
    else:
        print("\n".join(render_table(rows)))
    raise typer.Exit(1 if any(row.verdict is Verdict.BROKEN for row in rows) else 0)


def _refuse_unknown(names: Sequence[str], graph: Graph) -> None:
    from mmctl.trials.promises import calling_nodes

    known = [name for node in calling_nodes(graph) for name in node.covers]
    for name in names:
        if name not in known:
            raise InputError(
                f"`{graph.name}` has no node `{name}` that calls something",
                hint=nearest(name, known),
            )


def _chosen(names: Sequence[str], graph: Graph, form: Form) -> tuple[Node, ...]:
    """Nodes to drill, all without `names`. A pipeline that is one Python model has none: it fails
    as a whole.
    """
    from mmctl.trials.promises import calling_nodes

    if form == "fused":
        context.say(f"`{graph.name}` is one Python model: no part of it can fail alone")
        return ()
    nodes = calling_nodes(graph)
    return tuple(n for n in nodes if not names or set(names) & set(n.covers))


def render_table(rows: Sequence[Row]) -> list[str]:
    """Columns as wide as what is in them; numbers to the right."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if name in ("ms", "bound") else cell.ljust(width)
            for name, cell, width in zip(HEAD, line, widths, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    times = ("-" if ms is None else f"{ms:.0f}" for ms in (row.ms, row.bound_ms))
    return (row.node or "-", row.fault, row.promised, _short(row.got), *times, row.verdict)


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _as_values(pipeline: str, form: Form, rows: Sequence[Row]) -> dict[str, object]:
    return {
        "pipeline": pipeline,
        "form": form,
        "rows": [
            {
                **asdict(row),
                "ms": None if row.ms is None else round(row.ms, 1),
                "bound_ms": None if row.bound_ms is None else round(row.bound_ms, 1),
            }
            for row in rows
        ],
    }
