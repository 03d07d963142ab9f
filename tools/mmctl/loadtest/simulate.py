"""A pipeline under load as a simulation of discrete events: how long each request would take.

Models are what Triton makes of them: a queue, a batcher and instances. A batch of n rows takes
`per_row·n + fixed`. An instance that is free takes what waits, up to `max_batch`; fewer rows wait
until the oldest of them has waited for `delay` (Triton's `max_queue_delay_microseconds`). What
several nodes call they share. Instances do not slow each other down: that holds for models that
wait or have a device of their own, and is optimistic where they share cores. Pure.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mmctl.quantiles import rank


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds for a batch: `fixed` and `per_row` for each of its rows."""

    fixed: float
    per_row: float = 0.0

    def of(self, rows: int) -> float:
        return self.fixed + self.per_row * rows


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model is served. `delay` in seconds."""

    max_batch: int = 1
    instances: int = 1
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A call of `model` once the nodes of `after` have answered: with `rows`, by that `share` of
    the requests, and by at most `in_flight` of them at once.
    """

    name: str
    model: str
    after: tuple[str, ...] = ()
    rows: int = 1
    share: float = 1.0
    in_flight: int | None = None


Call = tuple[float, int, int]
"""Since when it waits, of which request, for which node."""


def simulate(
    nodes: Sequence[Node],
    costs: Mapping[str, Cost],
    settings: Mapping[str, Setting],
    arrivals: Iterable[float],
    overhead: float = 0.0,
) -> list[float]:
    """Seconds that each request takes, in the order of `arrivals` (seconds, in order). `overhead`
    is what the server adds to each. Nodes may be in any order, without cycles.
    """
    simulation = _Simulation(nodes, costs, settings)
    simulation.run(iter(arrivals))
    return [seconds + overhead for seconds in simulation.took]


def keeps(
    nodes: Sequence[Node],
    costs: Mapping[str, Cost],
    settings: Mapping[str, Setting],
    arrivals: Sequence[float],
    seconds: float,
    percent: float,
) -> bool:
    """Whether `percent` of the requests take at most `seconds`. Looks no further once it is plain
    that they do not, which is much sooner where queues grow without end.
    """
    simulation = _Simulation(nodes, costs, settings)
    simulation.limit = seconds
    simulation.allowed = max(0, len(arrivals) - 1 - rank(len(arrivals), percent / 100))
    simulation.run(iter(arrivals))
    return simulation.late <= simulation.allowed


@dataclass(slots=True)
class _Served:
    """A model and what happens to it."""

    cost: Cost
    setting: Setting
    free: int
    waiting: deque[Call] = field(default_factory=deque)
    rows: int = 0
    """Of all that waits."""
    look: float = -1.0
    """When it was last to look again."""


class _Simulation:
    """Events are (when, in which order, which model, its batch that has ended); without a batch
    a model is to look again, without a model a request arrives.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        costs: Mapping[str, Cost],
        settings: Mapping[str, Setting],
    ) -> None:
        index = {node.name: n for n, node in enumerate(nodes)}
        models = {
            name: _Served(costs[name], settings[name], settings[name].instances)
            for name in {node.model for node in nodes}
        }
        self.took: list[float] = []
        self.limit, self.allowed, self.late = math.inf, 0, 0
        self._nodes = nodes
        self._random = random.Random(1)
        self._asking = [0] * len(nodes)
        self._held: list[deque[int]] = [deque() for _ in nodes]
        self._models = [models[node.model] for node in nodes]
        self._needed = [len(node.after) for node in nodes]
        self._first = [n for n, count in enumerate(self._needed) if not count]
        self._followers: list[list[int]] = [[] for _ in nodes]
        for n, node in enumerate(nodes):
            for name in node.after:
                self._followers[index[name]].append(n)
        self._began: list[float] = []
        self._missing: list[list[int]] = []  # by request and node: answers that it waits for
        self._left: list[int] = []  # by request: nodes that have not answered
        self._events: list[tuple[float, int, _Served | None, list[Call] | None]] = []
        self._order = 0

    def run(self, arrivals: Iterator[float]) -> None:
        self._next(arrivals)
        while self._events and self.late <= self.allowed:
            now, _, model, batch = heapq.heappop(self._events)
            if model is None:
                self._next(arrivals)
                self._begin(now)
            elif batch is None:
                self._serve(model, now)
            else:
                model.free += 1
                for _, request, node in batch:
                    self._release(now, node)
                    self._answered(now, request, node)
                self._serve(model, now)

    def _next(self, arrivals: Iterator[float]) -> None:
        at = next(arrivals, None)
        if at is not None:
            self._push(at, None, None)

    def _push(self, at: float, model: _Served | None, batch: list[Call] | None) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, model, batch))

    def _begin(self, now: float) -> None:
        request = len(self._began)
        self._began.append(now)
        self.took.append(0.0)
        self._missing.append(self._needed.copy())
        self._left.append(len(self._needed))
        for node in self._first:
            self._ask(now, request, node)

    def _ask(self, now: float, request: int, node: int) -> None:
        """Ask now, or when fewer requests do, or not at all."""
        told = self._nodes[node]
        if told.share < 1 and self._random.random() >= told.share:
            self._answered(now, request, node)
        elif told.in_flight is not None and self._asking[node] >= told.in_flight:
            self._held[node].append(request)
        else:
            self._asking[node] += 1
            model = self._models[node]
            model.waiting.append((now, request, node))
            model.rows += told.rows
            self._serve(model, now)

    def _release(self, now: float, node: int) -> None:
        """An answer of the node has come: who was held up may ask."""
        self._asking[node] -= 1
        if self._held[node]:
            self._asking[node] += 1
            model = self._models[node]
            model.waiting.append((now, self._held[node].popleft(), node))
            model.rows += self._nodes[node].rows

    def _serve(self, model: _Served, now: float) -> None:
        """Start all batches that may start now, or look again when the next one may."""
        setting = model.setting
        while model.free and model.waiting:
            due = model.waiting[0][0] + setting.delay
            if model.rows < setting.max_batch and due > now:
                if model.look != due:
                    model.look = due
                    self._push(due, model, None)
                return
            batch, rows = self._taken(model)
            model.free -= 1
            self._push(now + model.cost.of(rows), model, batch)

    def _taken(self, model: _Served) -> tuple[list[Call], int]:
        """Calls for one batch, at least one, and their rows."""
        waiting, rows = model.waiting, 0
        batch: list[Call] = []
        while waiting:
            more = self._nodes[waiting[0][2]].rows
            if batch and rows + more > model.setting.max_batch:
                break
            batch.append(waiting.popleft())
            rows += more
        model.rows -= rows
        return batch, rows

    def _answered(self, now: float, request: int, node: int) -> None:
        self._left[request] -= 1
        if not self._left[request]:
            self.took[request] = now - self._began[request]
            self.late += self.took[request] > self.limit
        missing = self._missing[request]
        for follower in self._followers[node]:
            missing[follower] -= 1
            if not missing[follower]:
                self._ask(now, request, follower)


def capacity(
    nodes: Sequence[Node], costs: Mapping[str, Cost], settings: Mapping[str, Setting]
) -> float:
    """Requests a second that the busiest model can serve at most, in full batches."""
    return min(capacities(nodes, costs, settings).values(), default=math.inf)


def capacities(
    nodes: Sequence[Node], costs: Mapping[str, Cost], settings: Mapping[str, Setting]
) -> dict[str, float]:
    """By model: requests a second that it can serve, in full batches."""
    rows: dict[str, float] = {}
    for node in nodes:
        rows[node.model] = rows.get(node.model, 0.0) + node.rows * node.share
    found = {}
    for name, count in rows.items():
        setting = settings[name]
        work = costs[name].of(setting.max_batch) * count
        found[name] = setting.instances * setting.max_batch / work if work > 0 else math.inf
    return found
