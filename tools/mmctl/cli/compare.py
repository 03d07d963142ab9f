"""`mmctl compare MODEL`: FP32, FP16, INT8 side by side, and which one to serve."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json
from mmctl.errors import InputError
from mmctl.trials.compare import Objective

if TYPE_CHECKING:
    from mmctl.trials.compare.objective import Recommendation
    from mmctl.trials.compare.table import Comparison
    from mmctl.trials.compare.text import Cell, Line

PAPER_COLUMNS = 120


def compare(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder of model_repository/.")],
    objective: Annotated[
        Objective, typer.Option(help="What the recommended variant is best at.")
    ] = Objective.LATENCY,
    every: Annotated[
        bool, typer.Option("--all", help="Both ways to INT8, and INT4 weights as an experiment.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=10, help="How often variants take turns.")] = 10,
    batch: Annotated[
        int | None, typer.Option(min=1, help="This batch instead of the best one.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each variant; else one for each core.")
    ] = None,
    json: Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a README.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")
    ] = None,
) -> None:
    """Measure a model in other precisions: size, speed, memory, accuracy. Changes nothing."""
    from mmctl.files import write_text
    from mmctl.loadtest.machine import cores
    from mmctl.trials.compare.measure import compare as run
    from mmctl.trials.compare.objective import recommend
    from mmctl.trials.compare.text import values_of
    from mmctl.trials.compare.variants import read_onnx_model

    if json and markdown:
        raise InputError("`--json` and `--markdown` both say what to print", hint="choose one")
    if html is not None and html.is_dir():
        raise InputError(f"{html} is a folder", hint=f"name the file: `--html {html}/report.html`")
    chosen = read_onnx_model(context.workspace(), model)
    comparison = run(
        chosen,
        rounds=rounds,
        batch=batch,
        threads=threads or cores(),
        every=every,
        say=context.say,
    )
    recommendation = recommend(comparison.rows, objective)
    if html is not None:
        write_text(html, _as_html(comparison, recommendation, objective))
    if json:
        print(as_json(values_of(comparison, recommendation, objective)))
    elif markdown:
        print(_as_markdown(comparison, recommendation, objective), end="")
    else:
        _print_text(comparison, recommendation, objective)


def _as_html(comparison: Comparison, recommendation: Recommendation, objective: Objective) -> str:
    from mmctl.trials.compare.report import render_html
    from mmctl.trials.compare.text import advice_of, facts_of, lines_of

    return render_html(
        comparison.model,
        titles=[row.variant.title for row in comparison.rows],
        recommended=recommendation.title,
        lines=lines_of(comparison.rows),
        advice=advice_of(recommendation, objective),
        notes=comparison.notes,
        facts=facts_of(comparison),
    )


def _as_markdown(
    comparison: Comparison, recommendation: Recommendation, objective: Objective
) -> str:
    from mmctl.trials.compare.markdown import render_markdown
    from mmctl.trials.compare.text import advice_of, facts_of, lines_of

    return render_markdown(
        comparison.model,
        titles=[row.variant.title for row in comparison.rows],
        lines=lines_of(comparison.rows),
        advice=advice_of(recommendation, objective),
        notes=comparison.notes,
        facts=facts_of(comparison),
    )


def _print_text(
    comparison: Comparison, recommendation: Recommendation, objective: Objective
) -> None:
    from mmctl.trials.compare.text import advice_of, facts_of, lines_of

    titles = [row.variant.title for row in comparison.rows]
    _print_table(comparison.model, titles, lines_of(comparison.rows))
    print("\n".join(advice_of(recommendation, objective)))
    print()
    for note in comparison.notes:
        print(f"note: {note}")
    for name, value in facts_of(comparison).items():
        print(f"{name}: {value}")


def _print_table(model: str, titles: Sequence[str], lines: Sequence[Line]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(model)
    for title in titles:
        table.add_column(title, overflow="fold")
    for line in lines:
        table.add_row(line.title, *map(_shown, line.cells))
        if any(cell.detail for cell in line.cells):
            table.add_row("  95 % interval", *(cell.detail for cell in line.cells), style="dim")
    width = shutil.get_terminal_size(fallback=(PAPER_COLUMNS, 0)).columns
    Console(highlight=False, markup=False, width=width).print(table)


def _shown(cell: Cell) -> str:
    return cell.text if cell.ratio is None else f"{cell.text} ({cell.ratio:.2f})"
