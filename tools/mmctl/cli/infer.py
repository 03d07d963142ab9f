"""`mmctl infer PIPELINE`: send one request, print the answer, or show how to send it otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.render import as_json
from mmctl.diagnostics import nearest
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.client.sources import Source
    from mmctl.serving.session import Connection
    from mmctl.tensors import Signature


class Show(StrEnum):
    """What `--show` can print."""

    PYTHON = "python"
    CURL = "curl"
    PERF_ANALYZER = "perf_analyzer"


def infer(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline or a model.")],
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            "--input",
            metavar="NAME=VALUE",
            help="Text, @FILE, a number or JSON, @FILE.npy; again for each further row.",
        ),
    ] = None,
    sample: Annotated[
        str | None, typer.Option(metavar="NAME", help="Send samples/NAME.json of the pipeline.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME|URL", help="A target of mmctl.yaml, or host:port of gRPC."),
    ] = None,
    show: Annotated[
        Show | None, typer.Option(help="Print the same request in another form; send nothing.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send one request to a pipeline and print the answer."""
    from mmctl.client import Client
    from mmctl.client.answers import answer_values, render_answer
    from mmctl.client.requests import arrays_for
    from mmctl.client.show import SHOWN, Call
    from mmctl.client.sources import read_source

    if inputs and sample is not None:
        raise InputError("`-i` and `--sample` both given", hint="pass one of them")
    given = _given(inputs or [])
    sampled = None if sample is None else _sampled(pipeline, sample)
    with (
        _connection(target, pipeline) as connection,
        Client(connection.grpc, headers=connection.headers) as client,
    ):
        signature = _declared(client.signature(pipeline), pipeline)
        sources = _parsed(given, signature) if sampled is None else sampled
        values = {name: read_source(source, f"`-i {name}`") for name, source in sources.items()}
        arrays = arrays_for(pipeline, values, signature)
        if show is not None:
            http = connection.http or _http_beside(connection.grpc)
            print(SHOWN[show](Call(pipeline, sources, arrays, signature, connection.grpc, http)))
            if connection.private:
                context.say("note: this server ends now; run `mmctl serve` for one that stays")
            return
        started = time.perf_counter()
        response = client.infer(pipeline, arrays)
        ms = (time.perf_counter() - started) * 1000
    if json:
        print(as_json(answer_values(response, signature, ms)))
    else:
        print(render_answer(response, signature))
        context.say(f"{ms:.1f} ms")


def _given(options: list[str]) -> dict[str, list[str]]:
    """The texts of `-i` by input name, in order."""
    from mmctl.client.sources import parse_option

    given: dict[str, list[str]] = {}
    for name, text in map(parse_option, options):
        given.setdefault(name, []).append(text)
    return given


def _parsed(given: Mapping[str, list[str]], signature: Signature) -> dict[str, Source]:
    """What the texts mean for the tensors they go to; unknown names stay, to be told later."""
    from mmctl.client.sources import parse_source

    specs = {name: signature.input(name) for name in given}
    return {n: parse_source(given[n], spec) if spec else "" for n, spec in specs.items()}


def _sampled(pipeline: str, sample: str) -> dict[str, Source]:
    """The inputs of a sample, its files named as seen from the current folder."""
    from mmctl.client.samples import find_sample

    workspace = context.workspace()
    if pipeline not in (known := workspace.pipeline_names()):
        raise InputError(f"no pipeline `{pipeline}`", hint=nearest(pipeline, known))
    folder = os.path.relpath(workspace.pipelines / pipeline / "samples")
    return dict(find_sample(Path(folder), sample).sources)


@contextmanager
def _connection(target: str | None, pipeline: str) -> Iterator[Connection]:
    """An address needs no workspace; any other target is found or started there."""
    from mmctl.serving.session import Connection, connect

    if target is not None and ":" in target:
        from mmctl.client.transport import parse_address

        yield Connection(grpc=parse_address(target))
        return
    workspace = context.workspace()
    name = target or workspace.defaults.target
    with connect(workspace, name, [pipeline], context.say) as found:
        yield found


def _declared(signature: Signature, pipeline: str) -> Signature:
    """The signature with what only the workspace knows: which texts must be UTF-8."""
    from mmctl.client.requests import with_declared_texts
    from mmctl.triton.repository import read_lock

    try:
        workspace = context.workspace()
    except InputError:
        return signature
    if pipeline not in workspace.model_names():
        return signature
    lock = read_lock(workspace.models / pipeline)
    return with_declared_texts(signature, lock.signature) if lock else signature


def _http_beside(grpc: str) -> str:
    """Triton's HTTP port is the one below gRPC's, unless somebody said otherwise."""
    host, _, port = grpc.rpartition(":")
    return f"{host}:{int(port) - 1}"
