"""`mmctl trace PIPELINE`: which node costs the time of an answer, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmctl.cli import context
from mmctl.cli.asking import TargetOption
from mmctl.cli.context import Json
from mmctl.cli.render import SCHEMA, aligned, as_json
from mmctl.cli.report import HtmlOption, refuse_unreportable, write_report
from mmctl.cli.samples import samples_of
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.client.samples import Sample
    from mmctl.loadtest.advice import Advice
    from mmctl.trace.critical_path import Edges
    from mmctl.trace.spans import Span
    from mmctl.trace.summary import NodeRow, Summary
    from mmctl.workspace import Workspace

FLAGS = (
    "--trace-config=mode=opentelemetry",
    "--trace-config=opentelemetry,url=http://HOST:PORT/v1/traces",
    "--trace-config=rate=1000000",
    "--trace-config=level=TIMESTAMPS",
)


def trace(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline or a model.")],
    *,
    requests: Annotated[int, typer.Option(min=1, help="How many requests are traced.")] = 100,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where a foreign server sends its traces, as it was started."
        ),
    ] = None,
    forward: Annotated[
        str | None, typer.Option(metavar="URL", help="Pass all traces on to this OTLP address.")
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Write pipeline.yaml without the needless dependencies."),
    ] = False,
    target: TargetOption = None,
    html: HtmlOption = None,
    json: Json = False,
) -> None:
    """Trace requests through a pipeline: its critical path, and what speed would bring where."""
    workspace = context.workspace()
    samples = samples_of(workspace, pipeline, option=False)
    refuse_unreportable(html)
    target = target or workspace.defaults.target
    found = trace_samples(workspace, pipeline, target, samples, requests, listen, forward)
    if html is not None:
        write_report(html, None, {"schema": SCHEMA, **found.told})
    if json:
        print(as_json(found.told))
    else:
        print("\n".join(_render(pipeline, target, found.summary)))
        if found.advice is not None:
            print("\n" + "\n".join(_render_advice(found.advice, found.summary)))
    if apply:
        _apply(workspace, pipeline, found.advice)


@dataclass(frozen=True, slots=True)
class Found:
    """`told` is all of it, as JSON has it."""

    summary: Summary
    advice: Advice | None
    told: Mapping[str, Any]


def trace_samples(
    workspace: Workspace,
    pipeline: str,
    target: str,
    samples: Sequence[Sample],
    requests: int,
    listen: str | None = None,
    forward: str | None = None,
) -> Found:
    """Trace that many requests. Raises InputError where nobody knows where traces go."""
    from mmctl.client.transport import GrpcTransport
    from mmctl.loadtest.advice import advise
    from mmctl.loadtest.bench import asked_of
    from mmctl.loadtest.collect import collecting
    from mmctl.loadtest.tracing import trace_requests
    from mmctl.serving.session import connect
    from mmctl.trace.summary import summarise

    with connect(workspace, target, [pipeline], context.say) as connection:
        address = listen or connection.otlp
        if address is None:
            raise InputError(
                f"nobody knows where `{target}` sends its traces, or whether it does",
                hint="start it with " + " ".join(FLAGS) + ", and pass `--listen HOST:PORT`",
            )
        with (
            GrpcTransport(connection.grpc, connection.headers, connection.tls) as transport,
            collecting(address, forward) as collector,
        ):
            asked = asked_of(pipeline, samples, transport.signature(pipeline)).requests

            def tell(done: int) -> None:
                if done % 100 == 0 or done == requests:
                    context.say(f"{done} of {requests} requests traced")

            traced = trace_requests(transport, collector, asked, requests, workspace.models, tell)
            if collector.not_forwarded:
                context.say(f"note: {collector.not_forwarded} exports could not be passed on")
    summary = summarise(traced.roots, traced.edges, traced.batches)
    advice = advise(workspace, pipeline, traced.roots, traced.edges)
    told = {**_told(pipeline, target, summary, traced.edges), **_told_advice(advice)}
    return Found(summary, advice, told)


def _render(pipeline: str, target: str, summary: Summary) -> list[str]:
    head = (
        "node", "path ms", "share", "on path", "queue ms", "compute ms", "slack ms", "batch",
        "halved",
    )  # fmt: skip
    shown = [row for row in summary.rows if row.critical_ms or row.compute]
    lines = [
        f"{pipeline} on {target}: {summary.requests} requests, p50 {summary.p50:.1f} ms, "
        f"p95 {summary.p95:.1f} ms",
        "",
        *aligned([head, *(_row(row) for row in shown)]),
        "",
    ]
    return lines + _what_if(shown)


def _row(row: NodeRow) -> tuple[str, ...]:
    return (
        "/".join(row.path[1:]) or row.path[0],
        f"{row.critical_ms:.2f}",
        f"{row.share:.0%}",
        f"{row.on_path:.0%}",
        f"{row.queue:.2f}",
        f"{row.compute:.2f}",
        f"{row.slack:.2f}",
        "-" if row.batch is None else f"{row.batch:.1f}",
        f"-{row.halved_saves_p95:.2f} ms of p95",
    )


def _what_if(rows: Sequence[NodeRow]) -> list[str]:
    """The best that halving one node brings, and what cannot help at all."""
    computing = [row for row in rows if row.compute]
    lines = []
    if best := max(computing, key=lambda row: row.halved_saves_p95, default=None):
        lines.append(
            f"halving `{best.path[-1]}` saves {best.halved_saves_p95:.1f} ms of p95, "
            f"{best.halved_saves_p50:.1f} ms of p50"
        )
    off = [f"`{row.path[-1]}`" for row in computing if not row.on_path]
    if off:
        lines.append(f"{', '.join(off)}: never on the path, 0 ms")
    return lines


def _render_advice(advice: Advice, summary: Summary) -> list[str]:
    lines = ["needless dependencies:"]
    lines += [f"  {edge.position.line}:{edge.position.column} {edge.told}" for edge in advice.edges]
    if advice.text == advice.before:
        return lines
    lines += ["", *_diff(advice)]
    if advice.saves_p50 is not None and advice.saves_p95 is not None:
        lines += [
            "",
            f"without them: p50 {summary.p50 - advice.saves_p50:.1f} ms instead of "
            f"{summary.p50:.1f}, p95 {summary.p95 - advice.saves_p95:.1f} ms instead of "
            f"{summary.p95:.1f}, by these traces; `--apply` writes it",
        ]
    return lines


def _diff(advice: Advice) -> list[str]:
    lines = unified_diff(
        advice.before.splitlines(), advice.text.splitlines(), "pipeline.yaml", "pipeline.yaml",
        n=0, lineterm="",
    )  # fmt: skip
    return [line for line in lines if not line.startswith("@@")]


def _apply(workspace: Workspace, pipeline: str, advice: Advice | None) -> None:
    from mmctl.files import write_text

    if advice is None or advice.text == advice.before:
        context.say("nothing to apply: no dependency is needless")
        return
    path = workspace.pipelines / pipeline / "pipeline.yaml"
    write_text(path, advice.text)
    context.say(f"{workspace.shown(path)} is written; run `mmctl build {pipeline}`")


def _told_advice(advice: Advice | None) -> dict[str, Any]:
    if advice is None:
        return {"false_dependencies": [], "without_them_saves_ms": None}
    return {
        "false_dependencies": [
            {
                "reader": edge.reader,
                "input": edge.input,
                "reads": str(edge.wire),
                "instead": None if edge.instead is None else str(edge.instead),
                "through": list(edge.path),
                "line": edge.position.line,
                "column": edge.position.column,
            }
            for edge in advice.edges
        ],
        "without_them_saves_ms": {"p50": advice.saves_p50, "p95": advice.saves_p95},
    }


def _told(pipeline: str, target: str, summary: Summary, edges: Edges) -> dict[str, Any]:
    return {
        "kind": "trace",
        "pipeline": pipeline,
        "target": target,
        "requests": summary.requests,
        "length_ms": {"p50": summary.p50, "p95": summary.p95},
        "nodes": [
            {
                "path": list(row.path),
                "critical_ms": row.critical_ms,
                "critical_by_kind_ms": {kind.value: ms for kind, ms in row.critical.items()},
                "share": row.share,
                "on_path": row.on_path,
                "slack_ms": row.slack,
                "queue_ms": row.queue,
                "compute_ms": row.compute,
                "mean_batch": row.batch,
                "halved_saves_ms": {"p50": row.halved_saves_p50, "p95": row.halved_saves_p95},
            }
            for row in summary.rows
        ],
        "edges": {
            caller: {model: sorted(waited) for model, waited in waits.items()}
            for caller, waits in edges.items()
        },
        "waterfalls": {"median": waterfall(summary.median), "p99": waterfall(summary.p99)},
    }


def waterfall(root: Span) -> Mapping[str, Any]:
    """A request as nested spans: ms from its start."""

    def told(span: Span) -> dict[str, Any]:
        compute = span.compute
        return {
            "model": span.model,
            "version": span.version,
            "start_ms": (span.start - root.start) / 1e6,
            "end_ms": (span.end - root.start) / 1e6,
            "compute_ms": None
            if compute is None
            else [(time - root.start) / 1e6 for time in (compute.start, compute.end)],
            "calls": [told(child) for child in span.children],
        }

    return told(root)
