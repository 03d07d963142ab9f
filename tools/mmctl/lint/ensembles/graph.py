"""The steps of an ensemble and the tensors between them, as its config.pbtxt has them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mmctl.diagnostics import Position
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model


@dataclass(frozen=True, slots=True)
class Step:
    """A call. `inputs` and `outputs` map the names of the called model to tensors."""

    number: int
    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def __str__(self) -> str:
        return f"step {self.number} (`{self.model}`)" if self.model else f"step {self.number}"


@dataclass(frozen=True, slots=True)
class End:
    """Where a step writes or reads a tensor: as the model's output or input `name`."""

    step: Step
    name: str


@dataclass(frozen=True)
class Wiring:
    """`inputs` and `outputs` are those of the ensemble, in its order and without doubles."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optional: frozenset[str]
    steps: tuple[Step, ...]

    @cached_property
    def writers(self) -> Mapping[str, tuple[End, ...]]:
        """The steps that write a tensor, in their order."""
        return _ends((step, step.outputs) for step in self.steps)

    @cached_property
    def readers(self) -> Mapping[str, tuple[End, ...]]:
        return _ends((step, step.inputs) for step in self.steps)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Tensors that a step reads and nobody gives, in the order of the steps."""
        given = {*self.inputs, *self.writers}
        return tuple(tensor for tensor in self.readers if tensor not in given)

    @cached_property
    def unwritten(self) -> tuple[str, ...]:
        """Outputs of the ensemble that no step has to do with. One that is an input too is given
        back as it came.
        """
        known = {*self.writers, *self.readers, *self.inputs}
        return tuple(tensor for tensor in self.outputs if tensor not in known and self.steps)

    @cached_property
    def order(self) -> tuple[Step, ...]:
        """The steps that can run if nothing were missing, givers first: all but those in a circle
        and after one. What the caller gives is there from the beginning, who else may write it.
        """
        waits = {
            step.number: {
                tensor
                for tensor in step.inputs.values()
                if tensor in self.writers and tensor not in self.inputs
            }
            for step in self.steps
        }
        ready = deque(step for step in self.steps if not waits[step.number])
        order: list[Step] = []
        while ready:
            order.append(ready.popleft())
            for tensor in order[-1].outputs.values():
                for end in self.readers.get(tensor, ()):
                    left = waits[end.step.number]
                    if tensor in left:
                        left.remove(tensor)
                        if not left:
                            ready.append(end.step)
        return tuple(order)

    @cached_property
    def circles(self) -> tuple[tuple[Step, ...], ...]:
        """Steps that wait for each other, each after the one that it waits for, the first of the
        ensemble in front.
        """
        runs = {step.number for step in self.order}
        giver: dict[int, Step] = {}
        for step in self.steps:
            if step.number not in runs:
                giver[step.number] = next(g for g in self._givers(step) if g.number not in runs)
        return tuple(_circles({step.number: step for step in self.steps}, giver))

    def _givers(self, step: Step) -> Iterator[Step]:
        for tensor in step.inputs.values():
            if tensor not in self.inputs:
                yield from (end.step for end in self.writers.get(tensor, ()))

    @property
    def sound(self) -> bool:
        """Whether there are steps, each tensor has one source and all steps can run."""
        return (
            bool(self.steps)
            and not self.missing
            and not self.unwritten
            and len(self.order) == len(self.steps)
            and all(len(ends) == 1 for ends in self.writers.values())
            and not self.writers.keys() & set(self.inputs)
        )

    def before(self, tensor: str) -> Iterator[Step]:
        """The steps that a tensor comes from, the nearest first."""
        seen = {tensor}
        waiting = deque([tensor])
        while waiting:
            for end in self.writers.get(waiting.popleft(), ()):
                yield end.step
                fresh = [name for name in end.step.inputs.values() if name not in seen]
                seen.update(fresh)
                waiting.extend(fresh)

    def wrongly_dropped(self, output: str) -> tuple[Step, ...]:
        """The steps that `output` comes from and Triton leaves out when it alone is asked for.

        As EnsembleContext of Triton's core does it: outputs that are not asked for are dropped,
        with the steps that then give nothing, and so on backwards. It has two faults: a tensor
        counts as not needed although a step reads it, and one of the caller as given by step 0.
        """
        readers = {
            tensor: {end.step.number for end in ends} for tensor, ends in self.readers.items()
        }
        left = [len(step.outputs) for step in self.steps]
        dropped: set[int] = set()
        ignored = [name for name in self.outputs if name != output]
        while ignored:
            then: dict[str, None] = {}
            for tensor in ignored:
                ends = self.writers.get(tensor)
                step = ends[0].step if ends else self.steps[0]
                left[step.number] -= 1
                if left[step.number] == 0:
                    dropped.add(step.number)
                    for name in step.inputs.values():
                        readers[name].discard(step.number)
                        if not readers[name]:
                            then[name] = None
            ignored = list(then)
        return tuple(step for step in self.before(output) if step.number in dropped)


@remembered
def wiring_of(model: Model) -> Wiring:
    """The wiring of an ensemble."""
    message = model.message
    steps = tuple(
        Step(
            number,
            step.model_name,
            step.model_version,
            dict(sorted(step.input_map.items())),
            dict(sorted(step.output_map.items())),
        )
        for number, step in enumerate(message.ensemble_scheduling.step)
    )
    return Wiring(
        inputs=tuple(dict.fromkeys(row.name for row in message.input)),
        outputs=tuple(dict.fromkeys(row.name for row in message.output)),
        optional=frozenset(row.name for row in message.input if row.optional),
        steps=steps,
    )


def step_at(model: Model, step: Step, *location: str) -> Position:
    """A place in a step: a field, or the entry of a map."""
    return model.at("ensemble_scheduling", "step", step.number, *location)


def shown_way(names: Sequence[str]) -> str:
    """`a` -> `b` -> `a`; the middle of a long way is left out."""
    shown = [f"`{name}`" for name in names]
    return " -> ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-5:]])


def circle_through(start: str, calls: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """The shortest way along `calls` from `start` back to it, `start` at both ends; else ()."""
    came_from: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        caller = waiting.popleft()
        for called in calls(caller):
            if called == start:
                way = [start, caller]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return tuple(reversed(way))
            if called not in came_from:
                came_from[called] = caller
                waiting.append(called)
    return ()


def _ends(maps: Iterable[tuple[Step, Mapping[str, str]]]) -> Mapping[str, tuple[End, ...]]:
    found: dict[str, list[End]] = {}
    for step, names in maps:
        for name, tensor in names.items():
            found.setdefault(tensor, []).append(End(step, name))
    return {tensor: tuple(ends) for tensor, ends in found.items()}


def _circles(steps: Mapping[int, Step], giver: Mapping[int, Step]) -> Iterator[tuple[Step, ...]]:
    """Follow one giver from step to step: every such way ends in a circle."""
    seen: set[int] = set()
    for start in giver:
        number = start
        way: dict[int, None] = {}
        while number not in seen:
            seen.add(number)
            way[number] = None
            number = giver[number].number
        if number in way:
            circle = [steps[n] for n in reversed(list(way)[list(way).index(number) :])]
            first = circle.index(min(circle, key=lambda step: step.number))
            yield (*circle[first:], *circle[:first])
