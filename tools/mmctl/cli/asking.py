"""A request as commands take it: `-i NAME=VALUE` or a sample, for a model of a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.diagnostics import nearest
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.client import Client
    from mmctl.client.sources import Source
    from mmctl.serving.session import Connection
    from mmctl.tensors import Array, Signature

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "-i",
        "--input",
        metavar="NAME=VALUE",
        help="Text, @FILE, a number or JSON, @FILE.npy; again for each further row.",
    ),
]
Sample = Annotated[
    str | None, typer.Option(metavar="NAME", help="Send samples/NAME.json of the pipeline.")
]
TargetOption = Annotated[
    str | None,
    typer.Option(metavar="NAME|URL", help="A target of mmctl.yaml, or host:port of gRPC."),
]


@dataclass(frozen=True, slots=True)
class Asking:
    """A server and what it is to be asked: `sources` as the user wrote it, `arrays` as it is sent.

    `signature` knows which texts must be UTF-8 where the workspace says so.
    """

    connection: Connection
    client: Client
    signature: Signature
    sources: Mapping[str, Source]
    arrays: Mapping[str, Array]


@contextmanager
def asking(
    pipeline: str,
    inputs: list[str] | None,
    sample: str | None,
    target: str | None,
    *,
    splits: bool = False,
) -> Iterator[Asking]:
    """The server that is meant, found or started for this command, and the request to it. More rows
    than the model takes are for a caller that `splits` them.

    Raises InputError for what does not fit, with the place in it.
    """
    from mmctl.client import Client
    from mmctl.client.requests import arrays_for
    from mmctl.client.sources import read_source

    if inputs and sample is not None:
        raise InputError("`-i` and `--sample` both given", hint="pass one of them")
    given = _given(inputs or [])
    sampled = None if sample is None else _sampled(pipeline, sample)
    with (
        connection_to(target, pipeline) as connection,
        Client(connection.urls, headers=connection.headers, tls=connection.tls) as client,
    ):
        signature = _declared(client.signature(pipeline), pipeline)
        sources = _parsed(given, signature) if sampled is None else sampled
        values = {name: read_source(source, f"`-i {name}`") for name, source in sources.items()}
        arrays = arrays_for(pipeline, values, signature, splits=splits)
        yield Asking(connection, client, signature, sources, arrays)


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
def connection_to(target: str | None, pipeline: str) -> Iterator[Connection]:
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
