"""What a load test and a trace have found, put on one page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from mmctl.diagnostics import counted
from mmctl.loadtest.knee import knee
from mmctl.loadtest.report import plots
from mmctl.loadtest.report.graph import draw
from mmctl.loadtest.report.page import NONE, Source, facts, figure, page, section, table
from mmctl.loadtest.report.waterfall import waterfall

QUANTILES = ("p50", "p90", "p99")
MOST_PLOTS = 8
"""Of batch sizes; the table has all models."""
KNEE = (
    "The knee is the level with the greatest throughput for each ms of mean latency (Kleinrock's "
    "power): beyond it, callers wait longer more than they get more."
)
Document = Mapping[str, Any]


def render_report(bench: Document | None, trace: Document | None) -> str:
    """HTML. `bench` and `trace` as `--json` tells them, at least one of them."""
    document = {
        name: found for name, found in (("bench", bench), ("trace", trace)) if found is not None
    }
    source = Source(document)
    parts: list[tuple[str, str, list[str]]] = []
    if trace is not None:
        parts += [
            ("path", "Where the time goes", list(_graphs(source))),
            ("requests", "Two requests", list(_waterfalls(source))),
        ]
    if bench is not None:
        parts += [
            ("load", "Under load", list(_load(source))),
            ("batches", "Batches", list(_batches(source))),
            ("nodes", "Models", [_models(source)] if bench["nodes"] else []),
            ("errors", "Errors", [_errors(source)]),
        ]
        if bench.get("quality"):
            parts.append(("quality", "Quality", [_quality(source)]))
    parts.append(("run", "How it was measured", list(_conditions(source))))
    parts = [part for part in parts if part[2]]
    pipeline = str(next(iter(document.values()))["pipeline"])
    title = f"{pipeline}: what it takes, and where"
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in parts)
    body = [
        f"<header>\n<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(_origin(document))}</p>',
        *([_warning(f"cut short: {bench['partial']}")] if bench and bench["partial"] else []),
        _tiles(source),
        f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>\n</header>\n<main>',
        *(section(key, name, *inside) for key, name, inside in parts),
        "</main>",
    ]
    return page(title, body, document)


def _warning(text: str) -> str:
    return f'<p class="warning" role="note">{escape(text)}</p>'


def _origin(document: Document) -> str:
    bench, trace = document.get("bench"), document.get("trace")
    if bench is None:
        return f"{trace['requests']} traced requests on {trace['target']}" if trace else ""
    started = str(bench["started"]).replace("T", " ").replace("+00:00", " UTC")
    return f"{bench['profile']['text']} on {bench['target']}, {started}"


def _tiles(source: Source) -> str:
    """The numbers to take away: of several levels, those of the best one."""
    if "bench" in source.document:
        at, told = _best_level(source)
        shown = [
            (f"answers a second{told}", source.number(*at, "throughput"), ""),
            *(
                (f"{name}{told}", source.number(*at, "latency_ms", name), "ms")
                for name in ("p50", "p99")
            ),
            ("answered in all", source.number("bench", "completed"), ""),
            ("failed in all", source.number("bench", "failed"), ""),
        ]
    else:
        shown = [
            ("requests", source.number("trace", "requests"), ""),
            ("p50", source.number("trace", "length_ms", "p50"), "ms"),
            ("p95", source.number("trace", "length_ms", "p95"), "ms"),
        ]
    tiles = "".join(
        f"<div><dt>{name}</dt><dd>{value} <small>{unit}</small></dd></div>"
        for name, value, unit in shown
    )
    return f'<dl class="tiles">{tiles}</dl>'


def _best_level(source: Source) -> tuple[tuple[str | int, ...], str]:
    """Where its numbers are, and what to say of it."""
    levels = source.at("bench", "levels")
    if len(levels) < 2:
        return ("bench",), ""
    if (found := _knee(levels)) is not None:
        return ("bench", "levels", found), " at the knee"
    best = max(range(len(levels)), key=lambda n: levels[n]["throughput"])
    return ("bench", "levels", best), f" at {levels[best]['callers']} callers"


def _knee(levels: Sequence[Document]) -> int | None:
    throughputs = [level["throughput"] for level in levels]
    return knee(throughputs, [level["latency_ms"]["mean"] for level in levels])


def _graphs(source: Source) -> Iterator[str]:
    """One for the pipeline, one for each that it calls, and what each node costs."""
    trace = source.at("trace")
    shares: dict[tuple[str, ...], float] = {}
    for row in trace["nodes"]:
        for end in range(1, len(row["path"]) + 1):
            path = tuple(row["path"][:end])
            shares[path] = shares.get(path, 0.0) + row["share"]
    advice = ""
    if best := max(trace["nodes"], key=lambda row: row["halved_saves_ms"]["p95"], default=None):
        at = ("trace", "nodes", trace["nodes"].index(best), "halved_saves_ms")
        advice = (
            f'<div class="advice"><p>If <code>{escape(best["path"][-1])}</code> computed in half '
            f"the time, p95 would fall by {source.number(*at, 'p95')} ms and p50 by "
            f"{source.number(*at, 'p50')} ms.</p>{_needless(source)}</div>"
        )
    composers = [path for path in shares if any(p[:-1] == path for p in shares)]
    composers.sort(key=lambda path: (len(path), -shares[path]))
    drawn = []
    for path in composers:
        called = {p[-1]: share for p, share in shares.items() if p[:-1] == path}
        known = trace.get("edges", {}).get(path[-1])
        waits = {model: frozenset((known or {}).get(model, ())) & set(called) for model in called}
        told = (
            f"<code>{escape(' / '.join(path))}</code>: the share of the requests' time that each "
            "model holds up the answer, with all that it calls."
        )
        if known is None:
            told += " What waits for what is not known here."
        svg = draw(waits, called, path[-1])
        drawn.append(f"<figure>\n{svg}\n<figcaption>{told}</figcaption>\n</figure>")
    yield f'<div class="plots">{"".join([*drawn[:1], advice])}</div>'
    yield _costs(source)
    if drawn[1:]:
        inner = "\n".join(drawn[1:])
        title = f"Inside {counted(len(drawn) - 1, 'pipeline')} that it calls"
        yield f'<details><summary>{title}</summary>\n<div class="plots">{inner}</div></details>'


def _needless(source: Source) -> str:
    lines = "".join(map(_needless_line, source.at("trace").get("false_dependencies", ())))
    saves = source.at("trace").get("without_them_saves_ms")
    if not lines or not saves or saves["p95"] is None:
        return lines
    at = ("trace", "without_them_saves_ms")
    return (
        f"{lines}<p>Without that, p95 would fall by {source.number(*at, 'p95')} ms, p50 by "
        f"{source.number(*at, 'p50')} ms.</p>"
    )


def _needless_line(edge: Document) -> str:
    reader, read = escape(edge["reader"]), escape(edge["input"])
    through = " and ".join(f"<code>{escape(model)}</code>" for model in edge["through"])
    why = f"it does not use <code>{read}</code>"
    if edge["instead"]:
        source = f"<code>{escape(edge['instead'])}</code>"
        why = f"<code>{read}</code> comes through unchanged, from {source}"
    return f"<p><code>{reader}</code> waits for {through} without need: {why}.</p>"


def _costs(source: Source) -> str:
    head = (
        "node", "path ms", "share", "on path", "queue ms", "compute ms", "slack ms", "batch",
        "halved saves p50", "p95",
    )  # fmt: skip
    rows = []
    for n, row in enumerate(source.at("trace", "nodes")):
        at = ("trace", "nodes", n)
        rows.append(
            (
                escape(_short(row["path"])),
                source.number(*at, "critical_ms", digits=2),
                *(source.number(*at, name, percent=True) for name in ("share", "on_path")),
                *(
                    source.number(*at, name, digits=2)
                    for name in ("queue_ms", "compute_ms", "slack_ms", "mean_batch")
                ),
                *(source.number(*at, "halved_saves_ms", name, digits=2) for name in ("p50", "p95")),
            )
        )
    return table(head, rows, "what each node costs")


def _short(path: Sequence[str]) -> str:
    """Below the pipeline that was asked, and each without the name of the one that calls it."""
    names = [own.removeprefix(f"{above}__") for above, own in pairwise(path)]
    return " / ".join(names) or path[0]


def _waterfalls(source: Source) -> Iterator[str]:
    for name, title in (("median", "The median request"), ("p99", "The p99 request")):
        at = ("trace", "waterfalls", name)
        caption = f"{title}: {source.number(*at, 'end_ms')} ms. Beside a bar: answered at, ms."
        yield f"<h3>{title}</h3>" + waterfall(source, *at, caption=caption)


def _load(source: Source) -> Iterator[str]:
    figures = [part for part in (_curve(source), _over_time(source)) if part]
    if figures:
        yield '<div class="plots">' + "\n".join(figures) + "</div>"


def _curve(source: Source) -> str:
    levels = source.at("bench", "levels")
    if len(levels) < 2:
        return ""
    found = _knee(levels)
    labels = [str(level["callers"]) for level in levels]
    svg = plots.throughput_latency(
        [level["throughput"] for level in levels],
        {name: [level["latency_ms"][name] for level in levels] for name in QUANTILES},
        labels,
        found,
    )
    if found is None:
        told = "The knee is not within these levels. "
    else:
        at = ("bench", "levels", found)
        told = (
            f"The knee is at {source.number(*at, 'callers')} callers: "
            f"{source.number(*at, 'throughput')} answers a second. "
        )
    head = ("callers", "answers/s", *(f"{name} ms" for name in (*QUANTILES, "mean")), "failed", "")
    rows = [
        (
            source.number("bench", "levels", n, "callers"),
            source.number("bench", "levels", n, "throughput"),
            *(
                source.number("bench", "levels", n, "latency_ms", name)
                for name in (*QUANTILES, "mean")
            ),
            source.number("bench", "levels", n, "failed"),
            "knee" if n == found else "",
        )
        for n in range(len(levels))
    ]
    return figure(svg, told + KNEE, table(head, rows, "throughput and latency"))


def _over_time(source: Source) -> str:
    slices = source.at("bench", "slices")
    if len(slices) < 3:
        return ""
    svg = plots.over_time(
        [part["start_s"] + part["seconds"] / 2 for part in slices],
        {name: [part["latency_ms"][name] for part in slices] for name in QUANTILES},
        {
            name: [part[key] / part["seconds"] for part in slices]
            for name, key in (("offered", "offered"), ("answered", "completed"))
        },
    )
    head = ("from s", "offered", "answered", "failed", *(f"{name} ms" for name in QUANTILES))
    rows = [
        (
            source.number("bench", "slices", n, "start_s"),
            *(
                source.number("bench", "slices", n, name)
                for name in ("offered", "completed", "failed")
            ),
            *(source.number("bench", "slices", n, "latency_ms", name) for name in QUANTILES),
        )
        for n in range(len(slices))
    ]
    caption = (
        "Latency over time, each request counted when it was due; below, requests offered and "
        "those of them that were answered, a second."
    )
    return figure(svg, caption, table(head, rows, "latency over time"))


def _batches(source: Source) -> Iterator[str]:
    nodes = list(enumerate(source.at("bench", "nodes")))
    batched = [(n, node) for n, node in nodes if node["batches"]]
    if not batched:
        return
    varied = [node for _, node in batched if len(node["batches"]) > 1]
    varied.sort(key=lambda node: -(node["infer_ms"] or 0.0) * node["requests"])
    shown = varied[:MOST_PLOTS]
    sizes = sorted({int(size) for _, node in batched for size in node["batches"]})
    rows = [
        (
            escape(node["model"]),
            source.number("bench", "nodes", n, "mean_batch", digits=2),
            *(
                source.number("bench", "nodes", n, "batches", str(size))
                if str(size) in node["batches"]
                else NONE
                for size in sizes
            ),
        )
        for n, node in batched
    ]
    numbers = table(("model", "mean", *map(str, sizes)), rows, "executions by batch size")
    if not shown:
        yield "<p>No model has had batches of several sizes.</p>"
        yield numbers
        return
    svg = plots.batch_sizes(
        {
            node["model"]: {int(size): count for size, count in node["batches"].items()}
            for node in shown
        }
    )
    told = "Executions by the size of their batch"
    if len(batched) > len(shown):
        told += f", of the {len(shown)} models that computed longest with several sizes"
    yield figure(svg, f"{told}.", numbers)


def _models(source: Source) -> str:
    timed = ("queue_ms", "input_ms", "infer_ms", "output_ms")
    head = ("model", "version", "requests", "failed", "executions", "cache hits",
            "queue ms", "input ms", "infer ms", "output ms")  # fmt: skip
    rows = [
        (
            escape(node["model"]),
            escape(str(node["version"])),
            *(
                source.number("bench", "nodes", n, name)
                for name in ("requests", "failed", "executions", "cache_hits")
            ),
            *(source.number("bench", "nodes", n, name, digits=2) for name in timed),
        )
        for n, node in enumerate(source.at("bench", "nodes"))
    ]
    return "<p>As the server counted; times are means of a request.</p>" + table(
        head, rows, "models"
    )


def _errors(source: Source) -> str:
    found = []
    for name, title in (("errors", "reason"), ("wrong", "answers that were not the recorded")):
        if counts := source.at("bench").get(name):
            times = [(source.number("bench", name, reason), escape(reason)) for reason in counts]
            found.append(table(("times", title), times, title, texts=True))
    return "\n".join(found) or "<p>None.</p>"


def _quality(source: Source) -> str:
    rows = []
    for output, scored in source.at("bench", "quality", "outputs").items():
        at = ("bench", "quality", "outputs", output)
        for measure, value in scored.items():
            if isinstance(value, Mapping):
                low, high = (source.number(*at, measure, end, digits=3) for end in ("low", "high"))
                shown = source.number(*at, measure, "value", digits=3)
                rows.append((escape(output), escape(measure), shown, f"{low} to {high}"))
            elif measure != "kind":
                shown = source.number(*at, measure, digits=3)
                rows.append((escape(output), escape(measure), shown, NONE))
    counts = [source.number("bench", "quality", name) for name in ("samples", "failed")]
    return f"<p>{counts[0]} labelled samples, {counts[1]} failed.</p>" + table(
        ("output", "measure", "value", "95 % interval"), rows, "quality"
    )


def _conditions(source: Source) -> Iterator[str]:
    named: dict[str, str] = {}
    if bench := source.document.get("bench"):
        profile, machine, cpu = bench["profile"], bench["environment"], bench["cpu"]
        lag = ("bench", "send_lag_ms", "p99")
        named |= {
            "command": f"<code>{escape(bench['command'])}</code>",
            "profile": escape(f"{profile['text']}, {profile['seconds']:g} s, seed {profile['seed']}"
                              + (f", {profile['arrivals']}" if profile["arrivals"] else "")),
            "sent by": escape(bench["engine"]),
            "p99 of the send lag": f"{source.number(*lag, digits=3)} ms",
            "server": escape(f"{bench['target']}, Triton {bench['release'] or 'unknown'}"),
            "version": escape(str(bench["model_version"])),
            "machine": escape(f"{machine.get('cpu')}, {machine.get('cores')} cores, "
                              f"{machine.get('memory_gib')} GiB"),
            "GPUs": escape(", ".join(map(str, machine.get("gpus") or ())) or "none"),
            "Python, mmctl": escape(f"{machine.get('python')}, {machine.get('mmctl')}"),
        }  # fmt: skip
        for name, title in (("server_seconds", "server"), ("client_seconds", "sender")):
            if cpu.get(name) is not None:
                seconds = source.number("bench", "cpu", name)
                named[f"CPU seconds of the {title}"] = seconds
        if bench["checked"] is not None:
            named["answers checked"] = source.number("bench", "checked")
    if "trace" in source.document:
        named["traced requests"] = source.number("trace", "requests")
    yield facts(named)
    if bench and bench["gpu"]:
        yield _gpus(source)


def _gpus(source: Source) -> str:
    measures = (("utilization", "mean"), ("utilization", "max"))
    rows = [
        (
            escape(str(gpu["uuid"])),
            *(source.number("bench", "gpu", "gpus", n, *at, percent=True) for at in measures),
            source.number("bench", "gpu", "gpus", n, "memory_used_gib"),
            source.number("bench", "gpu", "gpus", n, "power_watts", "mean"),
        )
        for n, gpu in enumerate(source.at("bench", "gpu", "gpus"))
    ]
    return table(("GPU", "use", "at most", "memory GiB", "watts"), rows, "GPUs")
