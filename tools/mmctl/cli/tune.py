"""`mmctl tune MODEL|PIPELINE --slo p99=50ms`: the settings that serve the most within a promise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmctl.cli import context
from mmctl.cli.bench import Live
from mmctl.cli.context import Json
from mmctl.cli.render import aligned, as_json
from mmctl.cli.samples import samples_of
from mmctl.errors import InputError, Refused

if TYPE_CHECKING:
    from mmctl.loadtest.search import CostScore
    from mmctl.loadtest.simulate import Setting
    from mmctl.trials.tune import Outcome, Trial
    from mmctl.workspace import Workspace


def tune(
    name: Annotated[str, typer.Argument(metavar="MODEL|PIPELINE", help="What is to be tuned.")],
    *,
    slo: Annotated[
        str, typer.Option(metavar="QUANTILE=TIME", help="What answers have to keep: `p99=50ms`.")
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Write what won into model.yaml and pipeline.yaml.")
    ] = False,
    trials: Annotated[
        int, typer.Option(min=1, help="Settings that are tried on a real server, at most.")
    ] = 10,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long each load takes.")] = 4.0,
    max_batch: Annotated[int, typer.Option(min=1, help="The largest batch of a model.")] = 32,
    max_instances: Annotated[
        int | None,
        typer.Option(min=1, help="Instances of one model; as many as processors by default."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Instances of all models together.")
    ] = None,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Weigh throughput against cost, by `cost` of mmctl.yaml."),
    ] = False,
    samples: Annotated[
        Path | None, typer.Option(help="A folder of samples instead of the pipeline's own.")
    ] = None,
    json: Json = False,
) -> None:
    """Find batch sizes, instances and queue delays with which the most is served within a promise
    on latency: by simulation, and by a few trials on private servers.
    """
    from mmctl.loadtest.bench import Progress
    from mmctl.loadtest.search import parse_slo
    from mmctl.trials.tune import Options
    from mmctl.trials.tune import tune as tune_it

    promise = parse_slo(slo)
    workspace = context.workspace()
    known = samples_of(workspace, name, samples)
    score = _score(workspace) if cost else None
    options = Options(promise, trials, seconds, max_batch, max_instances, budget, score)
    with Live() as live:
        outcome = tune_it(workspace, name, known, options, context.say, Progress(live.tell))
    texts = _texts(workspace, outcome)
    told = _told(outcome, texts)
    print(as_json(told) if json else "\n".join(_render(outcome, texts)))
    if not outcome.best.rate:
        least = outcome.best.latency_s
        took = "no answer came" if least is None else f"{promise.name} was {least * 1000:.1f} ms"
        raise Refused(
            f"no setting keeps {promise}: at best {took}", hint="promise more time, or trace it"
        )
    if apply:
        _apply(workspace, outcome, texts)


def _score(workspace: Workspace) -> CostScore:
    from mmctl.loadtest.search import CostScore

    if workspace.cost is None:
        raise InputError(
            "`--cost`: mmctl.yaml does not say what serving costs",
            hint="add `cost: {per_hour: 0.80}`, and `per_instance_hour:` if instances cost",
        )
    return CostScore(**workspace.cost.model_dump())


def _texts(workspace: Workspace, outcome: Outcome) -> dict[str, tuple[str, str]]:
    """By file, its text before and after, where it changes."""
    from mmctl.files import read_text
    from mmctl.trials.tune_files import retuned

    texts: dict[str, tuple[str, str]] = {}
    for tunable in outcome.tunables:
        file, now = tunable.place.file, outcome.best.settings[tunable.name]
        if now != tunable.was:
            before, latest = texts.get(file) or (read_text(workspace.root / file),) * 2
            texts[file] = before, retuned(latest, tunable.place, tunable.was, now)
    return texts


def _apply(workspace: Workspace, outcome: Outcome, texts: Mapping[str, tuple[str, str]]) -> None:
    from mmctl.files import write_text

    if not texts:
        context.say("nothing to apply: the settings are the best that were found")
        return
    for file, (_, after) in texts.items():
        write_text(workspace.root / file, after)
    context.say(f"{', '.join(texts)}: written; run `mmctl build {outcome.name}`")


def _render(outcome: Outcome, texts: Mapping[str, tuple[str, str]]) -> list[str]:
    from mmctl.trials.tune import described, setting_text
    from mmctl.trials.tune_files import render_diff

    profile, best, before = outcome.profile, outcome.best, outcome.before
    head = ("model", "ms a batch", "error", "now", "best", "MiB", "KiB a row")
    rows = [head]
    for tunable in outcome.tunables:
        fit, held = profile.fits.get(tunable.name), profile.memory.get(tunable.name)
        rows.append(
            (
                tunable.name,
                "-"
                if fit is None
                else f"{fit.cost.fixed * 1e3:.2f} + {fit.cost.per_row * 1e3:.2f} n",
                "-" if fit is None else f"{fit.error:.0%}",
                setting_text(tunable.was),
                setting_text(best.settings[tunable.name]),
                "-" if held is None else f"{held.weights / 2**20:.0f}",
                "-" if held is None else f"{held.per_row / 2**10:.0f}",
            )
        )
    lines = [*aligned(rows), ""]
    if best.rate:
        gain = "" if before is None or not before.rate else f", {before.rate:.1f} before"
        lines.append(
            f"{best.rate:.1f} answers/s within {outcome.options.slo}{gain}: "
            f"{described(outcome, best.settings)}"
        )
    lines += [f"note: {note}" for note in dict.fromkeys(outcome.notes)]
    for file, (old, new) in texts.items():
        lines += ["", render_diff(file, old, new).rstrip("\n")]
    return lines


def _told(outcome: Outcome, texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    profile, options = outcome.profile, outcome.options
    return {
        "kind": "tune",
        "pipeline": outcome.name,
        "slo": {"quantile": options.slo.name, "ms": options.slo.seconds * 1000},
        "models": [
            {
                "model": tunable.name,
                "file": tunable.place.file,
                "node": tunable.place.node,
                "was": _setting(tunable.was),
                "best": _setting(outcome.best.settings[tunable.name]),
                "cost_ms": None if fit is None else {
                    "fixed": fit.cost.fixed * 1000,
                    "per_row": fit.cost.per_row * 1000,
                    "error": fit.error,
                    "batches": list(fit.sizes),
                },
                "memory_bytes": None if held is None else {
                    "weights": held.weights,
                    "per_row": held.per_row,
                },
            }
            for tunable in outcome.tunables
            for fit in [profile.fits.get(tunable.name)]
            for held in [profile.memory.get(tunable.name)]
        ],
        "overhead_ms": profile.overhead_s * 1000,
        "trials": [_trial(outcome, trial) for trial in outcome.trials],
        "best": _trial(outcome, outcome.best),
        "before": None if outcome.before is None else _trial(outcome, outcome.before),
        "files": sorted(texts),
        "notes": list(dict.fromkeys(outcome.notes)),
    }  # fmt: skip


def _trial(outcome: Outcome, trial: Trial) -> dict[str, Any]:
    return {
        "settings": {t.name: _setting(trial.settings[t.name]) for t in outcome.tunables},
        "predicted": round(trial.predicted, 3),
        "throughput": round(trial.rate, 3),
        "latency_ms": None if trial.latency_s is None else trial.latency_s * 1000,
        "value": trial.value,
    }


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "max_batch": setting.max_batch,
        "instances": setting.instances,
        "max_delay_ms": setting.delay * 1000,
    }
