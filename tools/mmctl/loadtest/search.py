"""The settings that serve the most requests within a promise on latency. Pure.

How many requests a second a setting serves is found in the simulation: the largest Poisson rate at
which the promised quantile is kept. Every setting sees the same gaps between arrivals, stretched
to the rate, so that two differ by what they do and not by luck.

The search climbs from several places, one model at a time, until no single change helps; in the
end what does not help is left as it was.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mmctl.errors import InputError
from mmctl.loadtest.simulate import (
    Cost,
    Node,
    Setting,
    capacities,
    capacity,
    keeps,
    simulate,
)
from mmctl.quantiles import PERCENTS, quantile

BETTER = 0.005
"""Less than that share is no gain."""
GROWS = 0.05
"""A larger batch or one more instance has to bring so much, or the climb of a model ends."""
FULL = 0.95
"""Of its capacity, no setting is thought to serve more: queues would grow for longer than any
simulation takes."""
MOST = 1e6
LOADS = (0.5, 0.7, 0.85, 1.0)
"""Shares of the largest rate at which the cost score is looked at."""

Settings = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Slo:
    """So many percent of the answers take at most `seconds`."""

    name: str
    percent: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}={self.seconds * 1000:g}ms"


def parse_slo(text: str) -> Slo:
    """`p99=50ms`, `p95=0.2s`. Raises InputError."""
    match = re.fullmatch(r"(\w+)\s*(?:=|<=)\s*(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip())
    if match is None or match[1] not in PERCENTS or float(match[2]) <= 0:
        raise InputError(
            f"`{text}` is no promise on latency",
            hint=f"write one like `p99=50ms`; quantiles are {', '.join(PERCENTS)}",
        )
    unit = {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match[3]]
    return Slo(match[1], PERCENTS[match[1]], float(match[2]) * unit)


@dataclass(frozen=True, slots=True)
class World:
    """What is tuned. `most_rate` is what the machine can do whatever the settings: a bound that
    the simulation does not know, by its processors for example.
    """

    nodes: Sequence[Node]
    costs: Mapping[str, Cost]
    overhead: float = 0.0
    most_rate: float = math.inf


@dataclass(frozen=True, slots=True)
class Choices:
    """What a model may be set to; each in ascending order."""

    batches: tuple[int, ...] = (1,)
    instances: tuple[int, ...] = (1,)
    delays: tuple[float, ...] = (0.0,)

    def __iter__(self) -> Iterator[Setting]:
        for batch in self.batches:
            for count in self.instances:
                for delay in self.delays if batch > 1 else self.delays[:1]:
                    yield Setting(batch, count, delay)


@dataclass(frozen=True, slots=True)
class Space:
    """Choices by model. `budget`: how many instances all models may have together."""

    models: Mapping[str, Choices]
    budget: int | None = None
    fits: Callable[[Settings], bool] = lambda _: True
    """Whether the settings fit into memory, for example."""

    def allows(self, settings: Settings) -> bool:
        used = sum(settings[name].instances for name in self.models)
        return (self.budget is None or used <= self.budget) and self.fits(settings)


@dataclass(frozen=True, slots=True)
class CostScore:
    """`throughput`·answers a second / cost an hour + `latency` / seconds. An hour costs
    `per_hour`, and `per_instance_hour` for each instance.
    """

    per_hour: float = 1.0
    per_instance_hour: float = 0.0
    throughput: float = 1.0
    latency: float = 1.0

    def of(self, rate: float, seconds: float, settings: Settings) -> float:
        count = sum(setting.instances for setting in settings.values())
        cost = self.per_hour + self.per_instance_hour * count
        return self.throughput * rate / cost + (self.latency / seconds if seconds > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class Found:
    """Settings, and what the simulation says of them. `value` is what was made the most of."""

    settings: Settings
    rate: float
    value: float


@dataclass(slots=True)
class Judge:
    """Says what settings are worth; remembers what it has looked at."""

    world: World
    slo: Slo
    requests: int = 1000
    seed: int = 1
    steps: int = 8
    """Halvings of the interval in which the largest rate lies."""
    cost: CostScore | None = None
    looks: int = field(default=0, init=False)
    _gaps: list[float] = field(default_factory=list, init=False)
    _known: dict[tuple[tuple[str, Setting], ...], Found] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        rng, now = random.Random(self.seed), 0.0
        for _ in range(self.requests):
            now += rng.expovariate(1.0)
            self._gaps.append(now)

    def found(self, settings: Settings) -> Found:
        key = tuple(sorted(settings.items()))
        if key not in self._known:
            rate = self.rate(settings)
            value = rate if self.cost is None else self._score(self.cost, settings, rate)
            self._known[key] = Found(dict(settings), rate, value)
        return self._known[key]

    def beats(self, settings: Settings, value: float) -> Found | None:
        """Its worth when that is more than `value`. Mostly one look is enough to say no."""
        if self.cost is None and not (
            self._bound(settings) > value and self.keeps(settings, value)
        ):
            return None
        found = self.found(settings)
        return found if found.value > value else None

    def rate(self, settings: Settings) -> float:
        """The largest at which the promise is kept, 0 where one request alone breaks it."""
        if self.alone(settings) > self.slo.seconds:
            return 0.0
        low, high = 0.0, self._bound(settings)
        for _ in range(self.steps):
            middle = (low + high) / 2
            if self.keeps(settings, middle):
                low = middle
            else:
                high = middle
        return low

    def keeps(self, settings: Settings, rate: float) -> bool:
        self.looks += 1
        if rate <= 0:
            return self.alone(settings) <= self.slo.seconds
        world = self.world
        return keeps(
            world.nodes,
            world.costs,
            settings,
            [gap / rate for gap in self._gaps],
            self.slo.seconds - world.overhead,
            self.slo.percent,
        )

    def latency(self, settings: Settings, rate: float, percent: float) -> float:
        """Seconds, by nearest rank."""
        world = self.world
        arrivals = [gap / rate for gap in self._gaps]
        took = sorted(simulate(world.nodes, world.costs, settings, arrivals, world.overhead))
        return quantile(took, percent / 100)

    def _score(self, cost: CostScore, settings: Settings, rate: float) -> float:
        """The best over several loads: who serves less answers sooner."""
        return max(
            (
                cost.of(load, self.latency(settings, load, self.slo.percent), settings)
                for load in (share * rate for share in LOADS)
                if load > 0
            ),
            default=0.0,
        )

    def alone(self, settings: Settings) -> float:
        """Seconds of a request that meets no other, and calls all there is to call."""
        world = self.world
        nodes = [replace(node, share=1.0) for node in world.nodes]
        return simulate(nodes, world.costs, settings, [0.0], world.overhead)[0]

    def _bound(self, settings: Settings) -> float:
        able = FULL * capacity(self.world.nodes, self.world.costs, settings)
        return min(able, self.world.most_rate, MOST)


def search(judge: Judge, space: Space, start: Settings) -> Found:
    """The best that climbing finds; `start` holds all models, also those that `space` leaves."""
    places = [start, *_generous(judge.world, space, start)]
    best = max(
        (_climb(judge, space, judge.found(place)) for place in places if space.allows(place)),
        key=lambda found: found.value,
    )
    return _unchanged(judge, space, best, start)


def _generous(world: World, space: Space, start: Settings) -> Iterator[Settings]:
    """Large batches that wait for nobody, or shortly, or the smallest batches; and as many
    instances as there may be: each goes to the model that has the most to do.
    """
    for end, delay in ((-1, 0), (-1, 1), (0, 0)):
        settings = dict(start)
        for name, choices in space.models.items():
            waits = choices.delays[: delay + 1][-1]
            settings[name] = Setting(choices.batches[end], choices.instances[0], waits)
        full: set[str] = set()
        while open_ := [name for name in space.models if name not in full]:
            able = capacities(world.nodes, world.costs, settings)
            name = min(open_, key=lambda name: able.get(name, math.inf))
            more = [n for n in space.models[name].instances if n > settings[name].instances]
            tried = {**settings, name: replace(settings[name], instances=more[0])} if more else None
            if tried is None or not space.allows(tried):
                full.add(name)
            else:
                settings = tried
        yield settings


def _climb(judge: Judge, space: Space, found: Found) -> Found:
    """Changes one model, or moves an instance from one to another, as long as that helps."""
    turns = 0
    moves = list(_moves(space, found.settings))
    while turns < len(moves):
        settings = moves[turns]
        turns += 1
        if not space.allows(settings):
            continue
        if better := judge.beats(settings, found.value * (1 + BETTER)):
            found, turns = better, 0
            moves = list(_moves(space, found.settings))
    return found


def _moves(space: Space, settings: Settings) -> Iterator[Settings]:
    """Every other setting of one model, and every move of instances between two."""
    for name, choices in space.models.items():
        for setting in choices:
            if setting != settings[name]:
                yield {**settings, name: setting}
    if space.budget is None:
        return
    for giver, of in space.models.items():
        less = [n for n in of.instances if n < settings[giver].instances]
        for taker, choices in space.models.items():
            more = [n for n in choices.instances if n > settings[taker].instances]
            if less and more and giver != taker:
                for batch in choices.batches:
                    yield {
                        **settings,
                        giver: replace(settings[giver], instances=less[-1]),
                        taker: replace(settings[taker], instances=more[0], max_batch=batch),
                    }


def _unchanged(judge: Judge, space: Space, best: Found, start: Settings) -> Found:
    """Back to what it was wherever that costs nothing: delays, then batches, then instances. An
    instance that does not help is also let go of.
    """
    least = best.value * (1 - BETTER)
    settings = dict(best.settings)
    for name, choices in space.models.items():
        for nearer in (_delays, _batches, _counts):
            for setting in nearer(settings[name], start[name], choices):
                tried = {**settings, name: setting}
                if space.allows(tried) and judge.beats(tried, least):
                    settings = tried
                    break
    return judge.found(settings)


def _delays(now: Setting, was: Setting, choices: Choices) -> Iterator[Setting]:
    """Between the two, what was first."""
    for delay in sorted({was.delay, *choices.delays}, key=lambda delay: abs(delay - was.delay)):
        if abs(delay - was.delay) < abs(now.delay - was.delay):
            yield replace(now, delay=delay)


def _batches(now: Setting, was: Setting, choices: Choices) -> Iterator[Setting]:
    old = was.max_batch
    for size in sorted({old, *choices.batches}, key=lambda size: abs(size - old)):
        if abs(size - old) < abs(now.max_batch - old):
            yield replace(now, max_batch=size)


def _counts(now: Setting, _was: Setting, choices: Choices) -> Iterator[Setting]:
    """The fewest first."""
    for count in choices.instances:
        if count < now.instances:
            yield replace(now, instances=count)


def candidates(judge: Judge, space: Space, best: Found, start: Settings) -> Iterator[Found]:
    """What is worth a trial on a real server, the most promising first: the best, what there was,
    and then what comes next to the best by one change: the simulation may err by a little. Of
    equal ones those that change less come first, and those with smaller batches last.
    """
    seen = [best.settings]
    yield best
    if start != best.settings:
        seen.append(start)
        yield judge.found(start)
    near = [
        judge.found(settings)
        for settings in _moves(space, best.settings)
        if space.allows(settings) and judge.keeps(settings, best.rate * 0.8)
    ]
    changed = {
        id(found): sum(found.settings[name] != start[name] for name in space.models)
        + sum(found.settings[name].max_batch < start[name].max_batch for name in space.models)
        for found in near
    }
    for found in sorted(near, key=lambda found: (-round(found.value, 2), changed[id(found)])):
        if found.settings not in seen:
            seen.append(found.settings)
            yield found


def climb_model(
    choices: Choices, measure: Callable[[Setting], float], may_go_on: Callable[[], bool]
) -> dict[Setting, float]:
    """What was measured of one model, while it may go on, in this order: the batch doubles from 1
    until throughput stops growing (or falls, as where the promise breaks); one step back by 20 %;
    then instances as long as they help; then the queue delay. `measure` gives answers a second
    within the promise.
    """
    known: dict[Setting, float] = {}

    def helps(setting: Setting) -> bool:
        """Whether it is better by more than noise; False as well when no trial is left."""
        if setting in known or not may_go_on():
            return False
        best = max(known.values(), default=0.0)
        known[setting] = measure(setting)
        return known[setting] > best * (1 + GROWS)

    def best() -> Setting:
        return max(known, key=lambda setting: known[setting], default=one)

    one = Setting(choices.batches[0], choices.instances[0], choices.delays[0])
    helps(one)
    for batch in choices.batches[1:]:
        if not helps(replace(one, max_batch=batch)):
            helps(replace(one, max_batch=max(1, int(batch * 0.8))))
            break
    for count in choices.instances[1:]:
        if not helps(replace(best(), instances=count)):
            break
    for delay in choices.delays[1:]:
        if best().max_batch == 1 or not helps(replace(best(), delay=delay)):
            break
    return known


def probe(keeps: Callable[[float], bool], guess: float, tries: int) -> float:
    """The largest rate that keeps the promise, by at most `tries` real loads from a guess on; 0
    where none did. Ends once it is known to 5 %.
    """
    low, high, rate = 0.0, math.inf, guess
    for _ in range(tries):
        if keeps(rate):
            low = rate
        else:
            high = rate
        if high <= low * 1.05:
            break
        if not low:
            rate = high * 0.7
        elif math.isinf(high):
            rate = low * 1.25
        else:
            rate = (low + high) / 2
    return low
