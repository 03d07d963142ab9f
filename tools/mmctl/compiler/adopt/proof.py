"""Is a compiled pipeline what the ensemble was? Field by field, tensors by what makes them. Pure.

Inside an ensemble the names of tensors and the order of the steps mean nothing. So each tensor is
called by the step and output that write it, `node.output`, on both sides, and each step by its
node; with that, equal means equal. Copies that the compiler adds are taken out first: a copy gives
what it reads, under another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmctl.compiler import Compiled
from mmctl.compiler.adopt.original import STEP, Difference, Original, difference
from mmctl.compiler.adopt.values import Location, values_of
from mmctl.lint.text import read_config_text
from mmctl.triton.config import EnsembleStep
from mmctl.triton.pbtxt import render_config
from mmctl.triton.repository import CONFIG

Facts = dict[Location, str]
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class _Side:
    """A config and how to read it: the node of each step (None for a copy), names of tensors."""

    message: Any
    nodes: Sequence[str | None]
    tensors: Mapping[str, str]


def find_differences(
    original: Original, nodes: Sequence[str], compiled: Compiled
) -> Iterator[Difference]:
    """`nodes` are the names of the original's steps; nothing comes when both are equal."""
    wanted, places = _facts(_original_side(original, nodes), original.name)
    found, _ = _facts(_compiled_side(compiled), original.name)
    for fact in sorted({**wanted, **found}, key=str):
        if wanted.get(fact) != found.get(fact):
            yield _told(original, fact, places.get(fact, _place(fact)), wanted, found)


def _original_side(original: Original, nodes: Sequence[str]) -> _Side:
    tensors = {
        tensor: f"{node}.{key}"
        for node, step in zip(nodes, original.steps, strict=True)
        for key, tensor in step.outputs.items()
    }
    return _Side(original.text.message, nodes, tensors)


def _compiled_side(compiled: Compiled) -> _Side:
    config = compiled.models[-1].configs[CONFIG]
    copies = {model.name for model in compiled.models[:-1]}
    tensors = {name: str(wire) for name, wire in compiled.graph.outputs.items()}
    tensors |= {f"{spec.name}__copy": spec.name for spec in compiled.graph.inputs}
    nodes = [_node_of(step, copies, tensors) for step in config.steps]
    return _Side(read_config_text(render_config(config), "").message, nodes, tensors)


def _node_of(step: EnsembleStep, copies: set[str], tensors: Mapping[str, str]) -> str | None:
    written = {tensors.get(tensor, tensor) for tensor in step.outputs.values()}
    if step.model in copies:
        read = {tensors.get(tensor, tensor) for tensor in step.inputs.values()}
        assert read == written, f"{step.model} does more than copy"
        return None
    return min(written).partition(".")[0]


def _facts(side: _Side, name: str) -> tuple[Facts, dict[Location, Location]]:
    """What a side says by meaning instead of by place; and the place of each."""
    facts: Facts = {("name",): name}
    places: dict[Location, Location] = {}
    for location, value in values_of(side.message).items():
        fact = _fact(side, location)
        if fact is not None:
            is_tensor = fact[-2:-1] in (("input_map",), ("output_map",))
            facts[fact] = side.tensors.get(value, value) if is_tensor else value
            places[fact] = location
    for index, tensor in enumerate(side.message.output):
        fact = ("output", tensor.name, "shows")
        facts[fact] = side.tensors.get(tensor.name, tensor.name)
        places[fact] = ("output", index, "name")
    return facts, places


def _fact(side: _Side, location: Location) -> Location | None:
    """The meaning of a place; None for what is said otherwise, and for copies."""
    match location:
        case ("name",) | ("input" | "output", _, "name"):
            return None
        case ("input" | "output" as kind, int(index), *rest):
            return (kind, getattr(side.message, kind)[index].name, *rest)
        case ("ensemble_scheduling", "step", int(index), *rest):
            node = side.nodes[index]
            return None if node is None else ("step", node, *rest)
        case _:
            return location


def _place(fact: Location) -> Location:
    """Where what only the compiled side has would stand."""
    return STEP if fact[0] == "step" else fact[:1]


def _told(
    original: Original, fact: Location, place: Location, wanted: Facts, found: Facts
) -> Difference:
    before, after = wanted.get(fact, ABSENT), found.get(fact, ABSENT)
    what = ".".join(str(key) for key in fact)
    message = f"`{what}` is {before}, as a pipeline it would be {after}"
    hint = None
    if fact[0] == "output" and fact[-1] in ("dims", "data_type"):
        giver = found.get(("output", fact[1], "shows"), "its model")
        hint = f"write {after}: an output of a pipeline has the type of what gives it, `{giver}`"
    return difference(original, place, message, hint)
