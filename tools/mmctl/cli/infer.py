"""`mmctl infer PIPELINE`: send one request, print the answer, or show how to send it otherwise."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from mmctl.cli import context
from mmctl.cli.asking import Inputs, Sample, TargetOption, asking
from mmctl.cli.context import Json
from mmctl.cli.render import as_json


class Show(StrEnum):
    """What `--show` can print."""

    PYTHON = "python"
    CURL = "curl"
    PERF_ANALYZER = "perf_analyzer"


def infer(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline or a model.")],
    *,
    inputs: Inputs = None,
    sample: Sample = None,
    target: TargetOption = None,
    show: Annotated[
        Show | None, typer.Option(help="Print the same request in another form; send nothing.")
    ] = None,
    json: Json = False,
) -> None:
    """Send one request to a pipeline and print the answer."""
    from mmctl.client.answers import answer_values, render_answer
    from mmctl.client.show import SHOWN, Call

    with asking(pipeline, inputs, sample, target, splits=show is None) as asked:
        connection, signature = asked.connection, asked.signature
        if show is not None:
            http = connection.http or _http_beside(connection.grpc)
            call = Call(pipeline, asked.sources, asked.arrays, signature, connection.grpc, http)
            print(SHOWN[show](call))
            if connection.private:
                context.say("note: this server ends now; run `mmctl serve` for one that stays")
            return
        started = time.perf_counter()
        response = asked.client.infer(pipeline, asked.arrays)
        ms = (time.perf_counter() - started) * 1000
    if json:
        print(as_json(answer_values(response, signature, ms)))
    else:
        print(render_answer(response, signature))
        context.say(f"{ms:.1f} ms")


def _http_beside(grpc: str) -> str:
    """Triton's HTTP port is the one below gRPC's, unless somebody said otherwise."""
    host, _, port = grpc.rpartition(":")
    return f"{host}:{int(port) - 1}"
