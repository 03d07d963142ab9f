"""`mmctl bench [TARGET] PIPELINE`: offer a load, and say what the answers took and where.
`mmctl bench diff A B`: two results beside each other.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmctl.cli import context
from mmctl.cli.context import Json
from mmctl.cli.render import SCHEMA, aligned, as_json
from mmctl.cli.report import (
    HtmlOption,
    refuse_unreportable,
    refuse_unwritable,
    write_report,
)
from mmctl.cli.samples import samples_of
from mmctl.diagnostics import counted
from mmctl.errors import InputError, Refused, WorldError
from mmctl.loadtest.schedule import PROFILES, Arrivals, ClosedLoop

if TYPE_CHECKING:
    from mmctl.client.samples import Sample
    from mmctl.client.transport import GrpcTransport
    from mmctl.loadtest.bench import Plan
    from mmctl.loadtest.perf_analyzer import Program
    from mmctl.loadtest.record import Recorder
    from mmctl.loadtest.result import Measured
    from mmctl.workspace import Workspace


class Engine(StrEnum):
    MMCTL = "mmctl"
    PERF_ANALYZER = "perf_analyzer"


_EXAMPLES = ", ".join(example for example, _ in PROFILES.values())
LATEST = 5
"""Of how many slices the live line tells."""


def bench(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] PIPELINE",
            help="A pipeline or a model, on the default target or on TARGET; or `diff A B`: "
            "two results beside each other.",
        ),
    ],
    *,
    profile: Annotated[
        str, typer.Option(metavar="PROFILE", help=f"What is offered: {_EXAMPLES}.")
    ] = "concurrency:1..8",
    seconds: Annotated[
        float | None, typer.Option(help="How long in all, or each level of `concurrency`.")
    ] = None,
    arrivals: Annotated[
        Arrivals, typer.Option(help="How requests of an open loop follow each other.")
    ] = Arrivals.POISSON,
    seed: Annotated[int, typer.Option(help="One seed gives one schedule.")] = 1,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which a request has failed.")
    ] = 10.0,
    samples: Annotated[
        Path | None, typer.Option(help="A folder of samples instead of the pipeline's own.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare each answer with the recorded one.")
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="Who sends: mmctl, or NVIDIA's perf_analyzer.")
    ] = Engine.MMCTL,
    quality: Annotated[
        Path | None,
        typer.Option(
            metavar="SET",
            help="Say how good the answers are, too, by a labelled set: JSON lines of `inputs` and "
            "`label`, or a folder of samples with `expect`.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result here, as JSON.")] = None,
    html: HtmlOption = None,
    trace: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="For `--html`: trace N requests after the load, too."
        ),
    ] = 0,
    json: Json = False,
) -> None:
    """Offer a load to a pipeline, with its samples as requests, and measure the answers.

    Latencies of an open loop count from when a request was due. The result of a load that was cut
    short is kept and says so.
    """
    from mmctl.loadtest.bench import Plan
    from mmctl.loadtest.schedule import parse_profile

    if what[0] == "diff" and len(what) == 3:
        _diff(Path(what[1]), Path(what[2]), json=json)
        return
    if len(what) > 2:
        raise InputError(
            "more than a target and a pipeline given",
            hint="write `mmctl bench TARGET PIPELINE`, or `mmctl bench diff A.json B.json`",
        )
    workspace = context.workspace()
    target = what[0] if len(what) == 2 else workspace.defaults.target
    plan = Plan(parse_profile(profile, seconds, _read_times), arrivals, seed, timeout, check)
    known = samples_of(workspace, what[-1], samples)
    _refuse_unchecked(known, what[-1], engine, plan.check)
    refuse_unwritable("--out", out)
    refuse_unreportable(html)
    if trace and html is None:
        raise InputError("`--trace` is for the page", hint="pass `--html FILE`, or `mmctl trace`")
    measured = _measure(workspace, target, what[-1], known, plan, profile, engine, quality)
    told = measured.told()
    if out is not None:
        from mmctl.files import write_text

        write_text(out, as_json(told) + "\n")
        context.say(f"written to {out}")
    if html is not None:
        write_report(html, told, None)
    print(as_json(told) if json else "\n".join(_render(told)))
    _judge(measured, told)
    if html is not None and trace:
        from mmctl.cli.trace import trace_samples

        traced = trace_samples(workspace, what[-1], target, known, trace).told
        write_report(html, told, {"schema": SCHEMA, **traced})


def _measure(
    workspace: Workspace,
    target: str,
    pipeline: str,
    samples: Sequence[Sample],
    plan: Plan,
    profile: str,
    engine: Engine,
    quality: Path | None,
) -> Measured:
    from mmctl.client.transport import GrpcTransport
    from mmctl.loadtest.bench import Progress, Server, add_quality, asked_of, measure
    from mmctl.loadtest.machine import environment
    from mmctl.loadtest.perf_analyzer import refuse_unable
    from mmctl.loadtest.quality import read_labelled
    from mmctl.serving.session import connect

    program = _program(workspace) if engine is Engine.PERF_ANALYZER else None
    with connect(workspace, target, [pipeline], context.say) as connection:
        server = Server(
            connection.grpc,
            connection.headers,
            connection.tls,
            connection.pid,
            connection.metrics,
        )
        with GrpcTransport(server.url, server.headers, server.tls) as transport:
            described = transport.describe(pipeline, identify=True)
            release = _release(transport)
        asked = asked_of(pipeline, samples, described.signature)
        labelled = [] if quality is None else read_labelled(quality, described.signature)
        graded = asked_of(pipeline, labelled, described.signature)
        about = {
            "pipeline": pipeline,
            "model_version": described.identity.version,
            "target": target,
            "release": release,
            "engine": engine.value,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["mmctl", *sys.argv[1:]]),
            "profile": {
                "text": profile,
                "arrivals": None if isinstance(plan.profile, ClosedLoop) else plan.arrivals.value,
                "seed": plan.seed,
                "seconds": plan.profile.seconds,
            },
            "environment": environment(),
        }
        if program is not None:
            refuse_unable(plan.profile, server.tls, server.headers)
            context.say(f"{program.path} sends for {plan.profile.seconds:g} s")
        with Live() as live:
            measured = measure(server, asked, plan, about, Progress(live.tell), program)
        if quality is not None and measured.partial is None:
            context.say(f"sending {counted(len(labelled), 'labelled sample')}")
            add_quality(measured, server, graded, labelled, plan.timeout_s)
            measured.quality = measured.quality and {"set": str(quality), **measured.quality}
        return measured


def _program(workspace: Workspace) -> Program:
    from mmctl.loadtest.perf_analyzer import find_program
    from mmctl.server.runtime import read_runtime, runtime_root

    return find_program(read_runtime(runtime_root(workspace)))


def _release(transport: GrpcTransport) -> str | None:
    """Of the server, as it says itself; None where it does not."""
    try:
        return transport.version()
    except WorldError:
        return None


class Live:
    """One line on a terminal that is written again and again; else one line every ten seconds."""

    EVERY = 10

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._told = 0

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._told:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def tell(self, callers: int | None, recorder: Recorder, in_flight: int) -> None:
        line = _live_line(callers, recorder, in_flight)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif self._told % self.EVERY == self.EVERY - 1:
            context.say(line)
        self._told += 1


def _live_line(callers: int | None, recorder: Recorder, in_flight: int) -> str:
    from mmctl.loadtest.record import joined

    begun = [part for part in recorder.slices if part.offered][-LATEST:]
    seconds = sum(part.seconds for part in begun)
    latest = joined(begun, seconds)
    p99 = latest.latency.quantile_ms(99)
    parts = [
        f"{callers} callers" if callers is not None else f"{in_flight} in flight",
        f"{latest.completed / seconds if seconds else 0:.0f} answers/s",
        f"p99 {p99:.1f} ms" if p99 is not None else "no answer yet",
        counted(sum(part.failed for part in recorder.slices), "error"),
    ]
    return ", ".join(parts)


def _render(told: Mapping[str, Any]) -> list[str]:
    """What a run has found, for people."""
    lines = [
        f"{told['pipeline']} {told['model_version']} on {told['target']}: "
        f"{told['completed']} of {told['offered']} answered, {told['failed']} failed",
        "",
        *aligned(
            [
                ("callers", "answers/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "failed"),
                *(_level_row(level) for level in told["levels"]),
            ]
        ),
    ]
    if told["nodes"]:
        head = ("model", "version", "requests", "batch", "queue ms", "compute ms", "failed")
        rows = [_node_row(node) for node in told["nodes"]]
        lines += ["", *aligned([head, *rows])]
    if told["errors"]:
        lines += ["", *aligned([(str(n), reason) for reason, n in told["errors"].items()])]
    if told["wrong"]:
        lines += ["", f"{told['wrong_answers']} of {told['checked']} answers were not the recorded"]
        lines += [f"  {n} times {what}" for what, n in told["wrong"].items()]
    if told["gpu"]:
        titles = ("GPU", "use", "at most", "memory GiB", "watts")
        lines += ["", *aligned([titles, *(_gpu_row(gpu) for gpu in told["gpu"]["gpus"])])]
    if told["quality"]:
        lines += ["", *_quality_lines(told["quality"])]
    if told["partial"]:
        lines += ["", f"cut short: {told['partial']}"]
    return lines


def _gpu_row(gpu: Mapping[str, Any]) -> tuple[str, ...]:
    use, watts = gpu["utilization"], gpu["power_watts"]
    shares = ("-" if use[name] is None else f"{use[name]:.0%}" for name in ("mean", "max"))
    memory = f"{_ms(gpu['memory_used_gib'])} of {_ms(gpu['memory_total_gib'])}"
    return (gpu["uuid"], *shares, memory, _ms(watts["mean"]))


def _quality_lines(quality: Mapping[str, Any]) -> list[str]:
    rows = [("output", "of", "measure", "value", "95 % interval")]
    for name, scored in quality["outputs"].items():
        for measure, value in scored.items():
            if isinstance(value, dict):
                interval = f"{value['low']:.3f} to {value['high']:.3f}"
                rows.append((name, scored["kind"], measure, f"{value['value']:.3f}", interval))
            elif measure != "kind":
                rows.append((name, scored["kind"], measure, f"{value:.3f}", "-"))
    head = f"{counted(quality['samples'], 'labelled sample')}, {quality['failed']} failed"
    return [head, *aligned(rows)]


def _level_row(level: Mapping[str, Any]) -> tuple[str, ...]:
    latency = level["latency_ms"]
    return (
        "-" if level["callers"] is None else str(level["callers"]),
        f"{level['throughput']:.1f}",
        *(_ms(latency[name]) for name in ("p50", "p90", "p99", "max")),
        str(level["failed"]),
    )


def _node_row(node: Mapping[str, Any]) -> tuple[str, ...]:
    compute = [node[name] for name in ("input_ms", "infer_ms", "output_ms")]
    return (
        node["model"],
        node["version"],
        str(node["requests"]),
        "-" if node["mean_batch"] is None else f"{node['mean_batch']:.1f}",
        _ms(node["queue_ms"]),
        "-" if None in compute else _ms(sum(compute)),
        str(node["failed"]),
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _judge(measured: Measured, told: Mapping[str, Any]) -> None:
    """Raises when the numbers are not what was asked for; they are printed and kept anyway."""
    from mmctl.loadtest.bench import INTERRUPTED

    if measured.partial == INTERRUPTED:
        raise KeyboardInterrupt
    if measured.partial is not None:
        raise WorldError(
            f"the load was cut short: {measured.partial}", hint="what was measured is above"
        )
    if late := measured.lateness():
        raise Refused(late, hint="offer less, or send from a machine with more free cores")
    if told["wrong_answers"]:
        raise Refused(f"{counted(told['wrong_answers'], 'answer')} differed from the recorded one")


def _diff(before: Path, after: Path, *, json: bool) -> None:
    from mmctl.loadtest.compare import Verdict, differences
    from mmctl.loadtest.result import read_result, slices_of

    one, two = read_result(before), read_result(after)
    alike = one.get("profile") == two.get("profile")
    found = differences(slices_of(one), slices_of(two), alike=alike)
    notes = [
        f"`{name}` differs: {one[name]} and {two[name]}"
        for name in ("pipeline", "target", "profile", "engine")
        if one.get(name) != two.get(name)
    ]
    if json:
        print(as_json({"differences": [asdict(row) for row in found], "notes": notes}))
    else:
        head = ("", before.name, after.name, "ratio", "95 % interval", "")
        print("\n".join(aligned([head, *(_difference_row(row) for row in found)])))
        for note in notes:
            context.say(f"note: {note}")
    raise typer.Exit(1 if any(row.verdict is Verdict.WORSE for row in found) else 0)


def _difference_row(row: Any) -> tuple[str, ...]:
    interval = "-" if row.low is None else f"{row.low:.3f} to {row.high:.3f}"
    numbers = ("-" if n is None else f"{n:.3f}" for n in (row.before, row.after, row.ratio))
    return (row.measure, *numbers, interval, row.verdict.value)


def _refuse_unchecked(
    samples: Sequence[Sample], pipeline: str, engine: Engine, check: bool
) -> None:
    if check and engine is not Engine.MMCTL:
        raise InputError(
            f"`--check`: {engine.value} does not compare answers",
            hint="take `--engine mmctl`, or `--quality` for the answers alone",
        )
    if check and not any(sample.expect for sample in samples):
        raise InputError(
            f"`--check`: no sample of `{pipeline}` says what its answer should be",
            hint='add "expect" to one',
        )


def _read_times(file: str) -> tuple[float, ...]:
    from mmctl.files import read_text

    path = Path(file)
    times = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            times.append(float(line))
        except ValueError:
            raise InputError(f"{path}:{number}: `{line.strip()}` is no time in seconds") from None
    return tuple(times)
