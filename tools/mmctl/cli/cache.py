"""`mmctl cache`: what caches have done, and the answers they share put out of reach."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmctl.cli import context
from mmctl.cli.asking import Inputs, Sample, TargetOption, asking, connection_to
from mmctl.cli.context import Json
from mmctl.cli.render import aligned, as_json
from mmctl.diagnostics import nearest
from mmctl.errors import InputError, Refused

if TYPE_CHECKING:
    from mmctl.cache.counters import Report
    from mmctl.cache.explain import Explanation, Held
    from mmctl.cache.settings import CacheSettings
    from mmctl.cache.statistics import Snapshot
    from mmctl.cache.stores.redis import SharedStore

app = typer.Typer(help="What caches have done, and why; their shared answers put out of reach.")

Models = Annotated[list[str] | None, typer.Argument(metavar="MODEL...", help="All by default.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="redis://HOST:PORT/0; by default that of the running server, else `cache.store` of "
        "mmctl.yaml.",
    ),
]


@app.command()
def stats(
    models: Models = None,
    *,
    store: StoreUrl = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print the text that Prometheus reads.")
    ] = False,
    json: Json = False,
) -> None:
    """Print what all processes that share the store have counted in the last 24 hours.

    By model and level: exact, normalised, semantic, none (the model had to run) and bypass.
    """
    from mmctl.cache.counters import read_reports
    from mmctl.cache.statistics import merge
    from mmctl.cache.statistics import prometheus as prometheus_text

    if prometheus and json:
        raise InputError("`--prometheus` and `--json` both given", hint="pass one of them")
    now = time.time()
    with _shared(store) as shared:
        reports = read_reports(shared, now)
        counted = merge(report.counts for report in reports)
        if unknown := [model for model in models or [] if model not in counted]:
            raise InputError(
                f"nothing was counted for `{unknown[0]}`", hint=nearest(unknown[0], counted)
            )
        counted = {name: counted[name] for name in models or sorted(counted)}
        if prometheus:
            print(prometheus_text(counted), end="")
        elif json:
            told = {"store": shared.shown, "processes": len(reports), "models": counted}
            print(as_json(told))
        else:
            print("\n".join(render_counts(counted, reports, now)))


@app.command()
def clear(
    models: Models = None,
    *,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Put all answers of models out of reach, in the store and in every process that shares it.

    Processes see it within a second; what they cannot reach any more ends by itself.
    """
    from mmctl.cache.epochs import ALL_MODELS, move_epoch

    with _shared(store) as shared:
        _refuse_unknown(shared, models or [])
        move_epoch(shared.url, models or [ALL_MODELS])
        if json:
            print(as_json({"store": shared.shown, "cleared": models or None}))
        else:
            cleared = ", ".join(f"`{model}`" for model in models or []) or "all models"
            print(f"the answers of {cleared} in {shared.shown} are out of reach")


@app.command()
def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model or a pipeline.")],
    *,
    inputs: Inputs = None,
    sample: Sample = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="As in Cache(tenant=...): whose answers are meant."),
    ] = None,
    target: TargetOption = None,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Say why a request is answered from a cache, or not: its key, and what the store holds.

    The request is given as for `mmctl infer`; it is not sent. Its texts show as digests.
    """
    from dataclasses import asdict

    from mmctl.cache.effects import performers
    from mmctl.cache.explain import explained
    from mmctl.client.replicas import open_server
    from mmctl.effects import by_type, drive
    from mmctl.inference import InferRequest

    settings = _settings()
    whose = _tenant_for(settings, model, tenant)
    shared = _maybe_shared(store)
    with asking(model, inputs, sample, target) as asked:
        at = asked.connection
        with closing(open_server(at.urls, at.headers, at.tls)) as server:
            identity = server.describe(model, identify=True).identity
        steps = explained(
            settings,
            identity,
            InferRequest(model, asked.arrays, headers=at.headers),
            tenant=whose,
            now=time.time(),
            secret=settings.secret(),
        )
        found = drive(steps, by_type(performers(shared)))
    if json:
        print(as_json(asdict(found)))
    else:
        print("\n".join(render_explanation(found, shared.shown if shared else None)))


@app.command()
def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Set to `verified`.")],
    texts: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help='Texts as they are asked: {"text": ...}.')
    ],
    *,
    target: TargetOption = None,
    json: Json = False,
) -> None:
    """Learn from texts and the model's answers when an answer may be given again; prove it.

    Caches of this workspace that embed on the server begin with what was proved. Exit 1 when
    nothing was.
    """
    from mmctl.cache.envelope import Entry, Vector, kept
    from mmctl.cache.semantic.calibrate import ENOUGH, calibrated, read_texts
    from mmctl.cache.semantic.embedders import served_digest, vector_of
    from mmctl.cache.semantic.levels import FOLDER, save
    from mmctl.cache.settings import VerifiedPolicy
    from mmctl.client import Client
    from mmctl.client.replicas import open_server

    setting = _settings().of(model)
    semantic = setting.semantic if setting else None
    if semantic is None or not isinstance(semantic.policy, VerifiedPolicy):
        raise InputError(
            f"`{model}` has nothing to calibrate",
            hint="set `semantic: {input: ..., output: ..., policy: {verified: {max_error: 0.02}}}` "
            "for it under `cache.models` of mmctl.yaml",
        )
    asked = read_texts(texts)
    with (
        connection_to(target, model) as at,
        closing(open_server(at.urls, at.headers, at.tls)) as server,
        Client(at.urls, headers=at.headers, tls=at.tls) as client,
    ):
        identity = server.describe(model, identify=True).identity
        embedder = server.describe(semantic.embedder, identify=True).identity

        def embed(text: str) -> Vector:
            told = client.infer(semantic.embedder, {"text": [text]})
            return vector_of(semantic.embedder, told.outputs, "embedding")

        def answer(text: str) -> Entry:
            response = client.infer(model, {semantic.input: [text]})
            return kept(response, created=time.time(), ttl_s=semantic.ttl_s)

        trust = calibrated(semantic, asked, embed, answer, served_digest(embedder, "embedding"))
    found = trust.calibration
    if found is None:
        raise Refused(
            f"{len(asked)} texts do not prove that at most {100 * trust.max_error:g} % of the "
            f"answers of `{model}` would be wrong",
            hint="give more texts" if len(asked) < ENOUGH else "promise less with `max_error`",
        )
    path = save(context.workspace().state / FOLDER, identity, semantic, trust)
    if json:
        print(as_json({"file": str(path), "texts": len(asked), **found.saved()}))
    else:
        print(
            f"`{model}`: of {found.count} texts that proved it {found.errors} would have had a "
            f"wrong answer, at most {100 * found.error_upper:.2f} % (95 % confidence); "
            f"{100 * found.coverage:.0f} % of the texts with a neighbour would be answered"
        )


def render_counts(counted: Snapshot, reports: Sequence[Report], now: float) -> list[str]:
    """The table, what one should know about it, and whose counts these are."""
    if not counted:
        return ["nothing was counted in the last 24 hours"]
    rows = [
        _row(model if first else "", level, counts)
        for model, levels in counted.items()
        for first, (level, counts) in _firsts(levels)
    ]
    return [
        *aligned([_TITLES, *rows]),
        *_remarks(counted),
        "",
        f"{len(reports)} process{'' if len(reports) == 1 else 'es'}, "
        f"the last told {max(now - reports[0].at, 0):.0f} s ago",
    ]


def render_explanation(found: Explanation, store: str | None) -> list[str]:
    """One line per part of the key, then what comes of it. `store` is its address."""
    rows = [
        ("model", f"{found.model}, version {found.version}"),
        ("content", found.digest or "unproven: known by its version alone"),
        ("for", found.audience),
        ("epoch", found.epoch),
        *(("input", f"{name}  {shown}") for name, shown in found.inputs.items()),
        ("outputs", ", ".join(found.outputs) or "all"),
        *(("parameter", f"{name}  {shown}") for name, shown in found.parameters.items()),
        *(("header", f"{name}  {shown}") for name, shown in found.headers.items()),
        ("key", found.key),
        *([("spelling", found.normalised_key)] if found.normalised_key else []),
        *([("partition", found.partition)] if found.partition else []),
        ("caches", f"none may answer it: {found.bypass}" if found.bypass else "may answer it"),
        ("store", _held_text(found.held, store)),
    ]
    if found.normalised_held is not None:
        rows.append(("", f"under its spelling: {_held_text(found.normalised_held, store)}"))
    return [f"{title:<10} {text}" for title, text in rows]


def _held_text(held: Held, store: str | None) -> str:
    if store is None:
        return "none is set: each process has its own answers"
    age = "" if held.age_s is None else f", {held.age_s:.1f} s old"
    return {
        "fresh": f"{store} has the answer{age}, for {held.left_s or 0:.0f} s more",
        "old": f"{store} has an old answer{age}: given while a new one is fetched",
        "nothing": f"{store} has no answer",
        "under way": f"{store} has no answer yet: a process computes it now",
        "unreadable": f"{store} has something of {held.bytes} bytes that is damaged or not ours",
        "unknown": f"{store} does not answer",
    }[held.state]


_TITLES = (
    "model",
    "level",
    "lookups",
    "hits",
    "share",
    "coalesced",
    "stale",
    "evicted",
    "MB",
    "saved s",
)


def _row(model: str, level: str, counts: dict[str, float]) -> tuple[str, ...]:
    def number(*names: str) -> str:
        return f"{sum(counts.get(name, 0) for name in names):.0f}"

    lookups, hits = counts.get("lookups", 0), counts.get("hits", 0)
    asked = bool(lookups) and level not in ("none", "bypass")
    return (
        model,
        level,
        number("lookups"),
        number("hits") if asked else "-",
        f"{100 * hits / lookups:.1f} %" if asked else "-",
        number("coalesced"),
        number("stale"),
        number("evicted_size", "evicted_ttl", "evicted_epoch"),
        f"{counts.get('bytes', 0) / 1e6:.1f}",
        f"{counts.get('saved_ms', 0) / 1000:.1f}",
    )


def _remarks(counted: Snapshot) -> Iterator[str]:
    """What a number of the table would not say by itself."""
    for model, levels in counted.items():
        if any(counts.get("unproven") for counts in levels.values()):
            yield f"`{model}` is unproven: known by its version alone, not by its content"
        if bad := sum(counts.get("unreadable", 0) for counts in levels.values()):
            yield f"`{model}`: {bad:.0f} answers in the store were damaged, or not ours"
        for level, counts in levels.items():
            if (bound := counts.get("error_upper_95")) is not None:
                probes, wrong = counts.get("probes", 0), counts.get("disagreements", 0)
                yield (
                    f"`{model}`, {level}: {wrong:.0f} of {probes:.0f} probes disagreed; "
                    f"at most {100 * bound:.2f} % of the hits are wrong (95 % confidence)"
                )


def _firsts(
    levels: dict[str, dict[str, float]],
) -> Iterator[tuple[bool, tuple[str, dict[str, float]]]]:
    order = ("exact", "normalised", "semantic", "none", "bypass")
    known = [level for level in order if level in levels]
    listed = [*known, *sorted(levels.keys() - set(order))]
    for place, level in enumerate(listed):
        yield place == 0, (level, levels[level])


def _refuse_unknown(shared: SharedStore, models: Sequence[str]) -> None:
    """A name that nobody has used here is more likely misspelt than without answers."""
    from mmctl.cache.stores import names

    if not models:
        return
    used = shared.run(*(("EXISTS", names.epoch(model)) for model in models))
    known = _workspace_models()
    for model, is_used in zip(models, used, strict=True):
        if not is_used and model not in known:
            raise InputError(
                f"nobody has kept answers of `{model}` in {shared.shown}",
                hint=nearest(model, known),
            )


def _workspace_models() -> list[str]:
    try:
        return context.workspace().model_names()
    except InputError:
        return []


@contextmanager
def _shared(url: str | None) -> Iterator[SharedStore]:
    """The store that is named, else that of the running server, else that of mmctl.yaml."""
    from mmctl.cache.stores.redis import SharedStore

    store = SharedStore(url or _store_here(), timeout_s=1.0)
    try:
        yield store
    finally:
        store.close()


def _maybe_shared(url: str | None) -> SharedStore | None:
    """The same; None when there is none."""
    from mmctl.cache.stores.redis import SharedStore

    found = url or _find_store()
    return SharedStore(found, timeout_s=1.0) if found else None


def _store_here() -> str:
    if (url := _find_store()) is None:
        context.workspace()  # where there is none, that is the first thing to say
        raise InputError(
            "there is no store that caches share",
            hint="start one with `mmctl serve --store`, set `cache: {store: redis://...}` in "
            "mmctl.yaml, or pass `--store URL`",
        )
    return url


def _find_store() -> str | None:
    from mmctl.server.info import read_server

    try:
        running = read_server(context.workspace().state)
    except InputError:
        return None
    return (running.store if running else None) or _settings().store


def _settings() -> CacheSettings:
    """Those of the workspace; where there is none, what is normal."""
    from mmctl.cache.settings import CacheSettings, read_settings
    from mmctl.errors import InvalidFiles

    try:
        return read_settings(context.workspace())
    except InvalidFiles:
        raise
    except InputError:
        return CacheSettings()


def _tenant_for(settings: CacheSettings, model: str, tenant: str | None) -> str:
    """The answers of a model that is set `shared` are nobody's own."""
    setting = settings.of(model)
    if tenant is None and not (setting is not None and setting.shared):
        raise InputError(
            f"each tenant has its own answers of `{model}`",
            hint="pass `--tenant NAME`, the one of `Cache(tenant=...)`",
        )
    return tenant or ""
