"""`mmctl demo PIPELINE`: build it, serve it, send every sample, show the answers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import as_json
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.building.build import Built
    from mmctl.client.samples import Sample
    from mmctl.serving.session import PrivateConnection
    from mmctl.tensors import Array
    from mmctl.workspace import Workspace

WARM_UP_ROUNDS = 2
SHOWN_CHARACTERS = 60
PAPER_COLUMNS = 120


@dataclass(frozen=True, slots=True)
class Answer:
    """One sample, what came back as text by output, and where it was not what was expected."""

    sample: Sample
    outputs: Mapping[str, str]
    ms: float
    differences: tuple[str, ...]


def demo(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline with samples.")],
    json: Json = False,
) -> None:
    """Build a pipeline, serve it on an embedded Triton, send its samples, show the answers."""
    from mmctl.client.samples import read_samples
    from mmctl.serving.session import private_server

    workspace = context.workspace()
    samples = read_samples(workspace.pipelines / pipeline / "samples")
    if not samples:
        raise InputError(
            f"ensembles/{pipeline}: no pipeline with samples",
            hint=f"write ensembles/{pipeline}/samples/NAME.json, one request each",
        )
    with private_server(workspace, [pipeline], context.say) as connection:
        built = connection.built
        signature = built.pipelines[-1].compiled.signature
        answers = _ask(connection, [spec.name for spec in signature.outputs], pipeline, samples)
    if json:
        print(as_json(_as_values(pipeline, answers, built)))
    else:
        _print_table(answers)
        _print_models(workspace, built)
    raise typer.Exit(1 if any(answer.differences for answer in answers) else 0)


def _ask(
    connection: PrivateConnection, outputs: list[str], pipeline: str, samples: list[Sample]
) -> list[Answer]:
    from mmctl.client import Client
    from mmctl.client.samples import compare, naming

    answers = []
    with Client(connection.grpc) as client:
        for _ in range(WARM_UP_ROUNDS):  # the first request of a process pays for its start
            for sample in samples:
                with naming(sample):
                    client.infer(pipeline, sample.inputs)
        for sample in samples:
            start = time.perf_counter()
            response = client.infer(pipeline, sample.inputs)
            ms = (time.perf_counter() - start) * 1000
            shown = {name: shown_value(response.outputs[name]) for name in outputs}
            differences = tuple(compare(response.outputs, sample.expect))
            answers.append(Answer(sample, shown, ms, differences))
    return answers


def shown_value(array: Array) -> str:
    """The first value of an answer as text; `[]` where there is none."""
    return _text(array.ravel()[0]) if array.size else "[]"


def _text(value: object) -> str:
    text = f"{value:.3f}" if hasattr(value, "dtype") and value.dtype.kind == "f" else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _print_table(answers: list[Answer]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    inputs = list(answers[0].sample.shown)
    outputs = list(answers[0].outputs)
    for name in (*inputs, *outputs):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right", no_wrap=True)
    for answer in answers:
        cells = [_text(answer.sample.shown[name]) for name in inputs]
        table.add_row(*cells, *answer.outputs.values(), f"{answer.ms:.1f}")
    width = shutil.get_terminal_size(fallback=(PAPER_COLUMNS, 0)).columns
    Console(highlight=False, markup=False, width=width).print(table)
    for answer in answers:
        for difference in answer.differences:
            print(f"{answer.sample.name}: {difference}")


def _print_models(workspace: Workspace, built: Built) -> None:
    from mmctl.triton.repository import read_lock

    for pipeline in built.pipelines:
        print(
            f"{pipeline.models[-1].model.name}: {pipeline.compiled.form}, because "
            f"{pipeline.compiled.reason}"
        )
    locks = {name: read_lock(workspace.models / name) for name in built.models}
    shown = [f"{name} {lock.version}" if lock else name for name, lock in locks.items()]
    print(f"{len(shown)} Triton models: " + ", ".join(shown))


def _as_values(pipeline: str, answers: list[Answer], built: Built) -> dict[str, object]:
    return {
        "pipeline": pipeline,
        "answers": [
            {
                "sample": answer.sample.name,
                "outputs": dict(answer.outputs),
                "ms": round(answer.ms, 2),
                "differences": list(answer.differences),
            }
            for answer in answers
        ],
        "forms": {p.models[-1].model.name: p.compiled.form for p in built.pipelines},
        "models": list(built.models),
    }
