"""The settings of a model, or of all models of a pipeline, that serve the most within a promise.

What is served now is asked first, at several loads: what its batches cost and what memory they
take. The simulation then looks for good settings. The best few are tried, each on a private server
of its own, and the best of those that were measured wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mmctl.client.samples import Sample
from mmctl.errors import InputError, Refused
from mmctl.loadtest.bench import Progress
from mmctl.loadtest.fit import Fit, Memory, fit_all, fit_memory
from mmctl.loadtest.machine import cores
from mmctl.loadtest.result import Measured
from mmctl.loadtest.schedule import ClosedLoop, OpenLoop, Phase
from mmctl.loadtest.search import (
    Choices,
    CostScore,
    Judge,
    Settings,
    Slo,
    Space,
    World,
    candidates,
    climb_model,
    probe,
    search,
)
from mmctl.loadtest.simulate import Cost, Node, Setting, simulate
from mmctl.serving.session import prepare, private_tree
from mmctl.trials import tune_memory
from mmctl.trials.tune_bed import Bed, Tunable
from mmctl.trials.tune_nodes import nodes_of, with_counts
from mmctl.workspace import Workspace

Say = Callable[[str], None]

FEW_CALLERS = (2, 4, 8)
DELAYS_S = (0.001, 0.002, 0.005, 0.01)
INSTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MATTERS = 0.02
"""A model with less of the work of a request is left as it is."""
LOADS = 7
"""At most so many loads are offered to find the largest rate of one setting."""
IDLE = 0.2
"""A request at a time, for so much of the time."""
NOISE = 0.03
"""Two measurements of one setting differ by as much."""
HOPELESS = 3
"""After so many trials in a row that were no better there are no more."""


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` is how long each load takes; without `cost` the most throughput is best.
    `max_instances` of one model, `budget` of all together; None: as many as processors, any.
    """

    slo: Slo
    trials: int = 10
    seconds: float = 4.0
    max_batch: int = 32
    max_instances: int | None = None
    budget: int | None = None
    cost: CostScore | None = None
    choices: Mapping[str, Choices] | None = None
    """By model, instead of those that follow from the bounds; models without stay as they are."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings on a real server: answers a second within the promise, and the quantile then.

    `rate` 0: the promise was kept at no rate that was tried, and `latency_s` is the least there
    was; None where nothing was answered.
    """

    settings: Settings
    predicted: float
    rate: float
    latency_s: float | None
    value: float


@dataclass(slots=True)
class Profile:
    """What the first look at a server has told."""

    nodes: Sequence[Node]
    fits: Mapping[str, Fit]
    memory: Mapping[str, Memory]
    available: float
    """Bytes that all instances may have together."""
    overhead_s: float
    most_rate: float


@dataclass(slots=True)
class Outcome:
    """`notes` are for people: what could not be known."""

    name: str
    options: Options
    tunables: Sequence[Tunable]
    was: Settings
    profile: Profile
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    late: int = 0
    """Loads that this machine could not offer on time."""

    @property
    def best(self) -> Trial:
        """Of equal ones the first: that was thought to be better. What there was stays where
        nothing is better by more than noise.
        """
        best = max(self.trials, key=lambda trial: (trial.value, -(trial.latency_s or 1e9)))
        before = self.before
        return before if before and best.value <= before.value * (1 + NOISE) else best

    @property
    def before(self) -> Trial | None:
        return next((trial for trial in self.trials if trial.settings == self.was), None)


def tune(
    workspace: Workspace,
    name: str,
    samples: Sequence[Sample],
    options: Options,
    say: Say,
    progress: Progress,
) -> Outcome:
    """Raises InputError for what cannot be set, Refused for what answers none of its samples; as a
    build and a server do otherwise.
    """
    with private_tree(workspace) as root:
        prepared = prepare(workspace, [name], root, say)
        bed = Bed(workspace, prepared, name, samples, progress)
        if not bed.tunables:
            raise InputError(
                f"`{name}` has nothing to set: what it runs is your own folder, or made one model",
                hint="models with a model.yaml can be set, and steps that are no part of another",
            )
        say(f"asking `{name}` what its batches cost")
        profile = profile_of(bed, options)
        outcome = Outcome(name, options, bed.tunables, bed.settings, profile)
        outcome.notes += _unknown(outcome)
        judge = Judge(world_of(profile), options.slo, cost=options.cost)
        _try(bed, outcome, judge, _space(outcome), say)
    for tunable in outcome.tunables:
        size = outcome.best.settings[tunable.name].max_batch
        if size < tunable.was.max_batch:
            outcome.notes.append(
                f"with that a request to `{tunable.name}` may have {size} rows at most, "
                f"{tunable.was.max_batch} before, and so may those to its pipelines"
            )
    if outcome.late:
        outcome.notes.append(
            f"{outcome.late} loads could not be offered on time: there this machine was the bound"
        )
    return outcome


def world_of(profile: Profile) -> World:
    costs = {model: fit.cost for model, fit in profile.fits.items()}
    known = {node.model: costs.get(node.model, Cost(0.0)) for node in profile.nodes}
    return World(profile.nodes, known, profile.overhead_s, profile.most_rate)


def profile_of(bed: Bed, options: Options) -> Profile:
    """One caller tells what a request costs alone, several make batches of several sizes, and many
    keep the server busy.
    """
    available = tune_memory.available_bytes()
    most = options.max_batch
    wide = {
        t.name: Setting(max(most, t.was.max_batch) if t.batched else 1, t.was.instances)
        for t in bed.tunables
    }
    settings = {**bed.settings, **wide}
    levels = ((1,), FEW_CALLERS, (min(64, max(16, 2 * most)),))
    with bed.serving(settings) as (server, asked):
        at_rest = tune_memory.resident(server.stub_pids())
        alone, few, many = (
            bed.load(server, asked, ClosedLoop("profile", callers, max(1.0, options.seconds / 2)))
            for callers in levels
        )
        peaks = tune_memory.peaks(server.stub_pids())
    answered = alone.whole
    if not answered.completed:
        reason = next(iter(answered.errors), "none came in time")
        raise Refused(f"`{bed.name}` does not answer its samples: {reason}")
    statistics = [stats for measured in (alone, few, many) for stats in measured.nodes]
    fits = fit_all(statistics)
    rows = {stats.model: stats.rows / answered.completed for stats in alone.nodes}
    nodes = with_counts(nodes_of(bed.name, bed.pipelines), rows)
    costs = {node.model: fits[node.model].cost for node in nodes if node.model in fits}
    costs = {**{node.model: Cost(0.0) for node in nodes}, **costs}
    largest = {stats.model: max(stats.batches, default=1) for stats in (*alone.nodes, *many.nodes)}
    return Profile(
        nodes=nodes,
        fits=fits,
        memory={
            model: fit_memory(rest, {largest.get(model, 1): peaks.get(model, rest)})
            for model, rest in at_rest.items()
        },
        available=available,
        overhead_s=_overhead(nodes, costs, settings, alone),
        most_rate=_most_rate(many),
    )


def _overhead(
    nodes: Sequence[Node], costs: Mapping[str, Cost], settings: Settings, alone: Measured
) -> float:
    """What a request alone takes beside the work of its models."""
    took = (alone.whole.latency.quantile_ms(50) or 0.0) / 1000
    gaps = [n * 1000.0 for n in range(101)]
    computed = sorted(simulate(nodes, costs, settings, gaps))[50]
    return max(0.0, took - computed)


def _most_rate(many: Measured) -> float:
    """What the processors can do, with the client beside the server."""
    used = sum(value or 0.0 for value in many.cpu.values())
    return cores() * many.whole.completed / used if used else float("inf")


def _unknown(outcome: Outcome) -> list[str]:
    profile = outcome.profile
    unmeasured = [t.name for t in outcome.tunables if t.name not in profile.memory]
    notes = []
    if unmeasured:
        notes.append(
            f"memory of {_names(unmeasured)} is not told apart from the server's: no bound on it"
        )
    idle = [t.name for t in outcome.tunables if t.name not in profile.fits]
    if idle:
        notes.append(f"{_names(idle)}: not called by any sample, so left as it is")
    flat = [m for m, fit in profile.fits.items() if len(fit.sizes) == 1]
    if flat:
        notes.append(f"{_names(flat)}: batches of one size only, so what larger ones cost is open")
    return notes


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _space(outcome: Outcome) -> Space:
    """Only models that matter can be changed; each may stay as it is."""
    profile, options = outcome.profile, outcome.options
    work = {
        node.model: profile.fits[node.model].cost.of(1)
        for node in profile.nodes
        if node.model in profile.fits
    }
    whole = sum(work.values())
    models = {
        t.name: _choices(t, options)
        for t in outcome.tunables
        if work.get(t.name, 0.0) > MATTERS * whole
    }
    if options.choices is not None:
        models = {name: options.choices[name] for name in models if name in options.choices}
    return Space(models, options.budget, lambda settings: fits_memory(profile, settings))


def _choices(tunable: Tunable, options: Options) -> Choices:
    most = options.max_instances or max(cores(), tunable.was.instances)
    doubled = [1 << n for n in range(17) if tunable.least <= 1 << n <= options.max_batch]
    batches = {tunable.was.max_batch, *(doubled if tunable.batched else [])}
    delays = {0.0, *(delay for delay in DELAYS_S if delay <= options.slo.seconds / 4)}
    return Choices(
        tuple(sorted(batches)),
        tuple(n for n in INSTANCES if n <= most),
        tuple(sorted(delays if tunable.batched else {0.0})),
    )


def fits_memory(profile: Profile, settings: Settings) -> bool:
    """All instances of all models together, each with its largest batch."""
    needed = sum(
        setting.instances * held.of(setting.max_batch)
        for name, setting in settings.items()
        if (held := profile.memory.get(name)) is not None
    )
    return needed <= profile.available


def _try(bed: Bed, outcome: Outcome, judge: Judge, space: Space, say: Say) -> None:
    if len(judge.world.nodes) == 1 and space.models:
        [(name, choices)] = space.models.items()

        before = _trial(bed, outcome, judge, outcome.was, say)

        def measured(setting: Setting) -> float:
            settings = {**outcome.was, name: setting}
            if settings == outcome.was:
                return before.value
            return (
                _trial(bed, outcome, judge, settings, say).value if space.allows(settings) else 0.0
            )

        climb_model(choices, measured, lambda: len(outcome.trials) < outcome.options.trials)
        return
    best = search(judge, space, outcome.was) if space.models else judge.found(outcome.was)
    say(f"{judge.looks} simulations: {best.rate:.1f} answers/s are possible, as it seems")
    in_vain = 0
    for found in candidates(judge, space, best, outcome.was):
        if len(outcome.trials) >= outcome.options.trials or in_vain >= HOPELESS:
            break
        trial = _trial(bed, outcome, judge, found.settings, say)
        in_vain = 0 if outcome.best is trial or len(outcome.trials) < HOPELESS else in_vain + 1


def _trial(bed: Bed, outcome: Outcome, judge: Judge, settings: Settings, say: Say) -> Trial:
    """The largest rate that keeps the promise, on a server with these settings."""
    options = outcome.options
    predicted = judge.found(settings)
    seen: dict[float, float] = {}
    least: float | None = None
    with bed.serving(settings) as (server, asked):

        def offered(rate: float) -> Measured:
            """Once more where this machine was late: that says nothing of the server."""
            phase = Phase(options.seconds, rate, rate)
            measured = bed.load(server, asked, OpenLoop("tune", (phase,)), seed=len(seen) + 1)
            if measured.lateness():
                outcome.late += 1
                measured = bed.load(server, asked, OpenLoop("tune", (phase,)), seed=len(seen) + 1)
            return measured

        def keeps(rate: float) -> bool:
            nonlocal least
            measured = offered(rate)
            whole = measured.whole
            latency = whole.latency.quantile_ms(options.slo.percent)
            if latency is not None:
                seen[rate] = latency / 1000
                least = min(seen[rate], least or seen[rate])
            if latency is None or whole.failed or measured.lateness():
                return False
            return seen[rate] <= options.slo.seconds

        guess = predicted.rate * _realism(outcome)
        if guess:
            rate = probe(keeps, max(guess, 1 / options.seconds), LOADS)
        else:  # even one request alone is too slow, as it seems: a look at hardly any load
            rate = probe(keeps, max(IDLE / judge.alone(settings), 4 / options.seconds), 2)
    latency_s = seen[rate] if rate else least
    value = rate
    if options.cost is not None:
        value = options.cost.of(rate, latency_s or 0.0, settings) if rate else 0.0
    trial = Trial(settings, predicted.rate, rate, latency_s, value)
    outcome.trials.append(trial)
    number = len(outcome.trials)
    say(f"trial {number}: {described(outcome, settings)}: {_told(trial, options.slo)}")
    return trial


def _realism(outcome: Outcome) -> float:
    """What of a predicted rate was there in the last trial that kept the promise."""
    kept = [trial for trial in outcome.trials if trial.rate and trial.predicted]
    return kept[-1].rate / kept[-1].predicted if kept else 1.0


def _told(trial: Trial, slo: Slo) -> str:
    if not trial.rate:
        took = "no answer" if trial.latency_s is None else f"{trial.latency_s * 1000:.1f} ms"
        return f"never within {slo} (at best {took})"
    assert trial.latency_s is not None
    return (
        f"{trial.rate:.1f} answers/s at {slo.name} {trial.latency_s * 1000:.1f} ms, "
        f"{trial.predicted:.1f} predicted"
    )


def described(outcome: Outcome, settings: Settings) -> str:
    """What differs from how it is now."""
    parts = [
        f"{tunable.name} {setting_text(settings[tunable.name])}"
        for tunable in outcome.tunables
        if settings[tunable.name] != tunable.was
    ]
    return ", ".join(parts) or "as it is"


def setting_text(setting: Setting) -> str:
    """`8x2+1ms`: batches of 8, 2 instances, which wait for 1 ms."""
    delay = f"+{setting.delay * 1000:g}ms" if setting.delay else ""
    return f"{setting.max_batch}x{setting.instances}{delay}"
