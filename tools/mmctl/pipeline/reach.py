"""What leads where: circles, inputs that nothing reads, nodes whose work nobody sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mmctl.documents import Key
from mmctl.pipeline.conditions import Conditions
from mmctl.pipeline.findings import (
    CYCLE,
    EXPRESSION,
    LIST,
    MISSING_INPUT,
    OUTPUT_IS_INPUT,
    POLICY,
    STEP_PARAMETERS,
    SWITCH,
    UNKNOWN_REFERENCE,
    UNUSED_INPUT,
    UNUSED_NODE,
    Report,
)
from mmctl.pipeline.graph import Wire
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.nodes.switch import SwitchNode
from mmctl.pipeline.scope import parse_reference
from mmctl.pipeline.spec import Spec

EDGES_UNKNOWN = {
    CYCLE, EXPRESSION, LIST, MISSING_INPUT, OUTPUT_IS_INPUT, POLICY, STEP_PARAMETERS, SWITCH,
    UNKNOWN_REFERENCE,
}  # fmt: skip
"""Findings about an edge that is missing or leads elsewhere than it was meant to."""


def check_circles(
    circles: Iterable[Sequence[str]], spec: Spec, conditions: Conditions, report: Report
) -> None:
    """A finding for each circle, where the edge that closes it stands."""
    for circle in circles:
        taker, giver = circle[-1], circle[-2]
        places = (place for place, node in _edges(taker, spec, conditions) if node == giver)
        place = next(places, ("nodes", taker))
        edge = f"one input of `{taker}`" if "inputs" in place else "that"
        report.add(
            CYCLE,
            f"nodes feed each other in a circle: {' -> '.join(circle)}",
            *place,
            hint=f"remove {edge}, or split `{taker}` in two nodes",
        )


def needs_of(spec: Spec, conditions: Conditions) -> dict[str, list[str]]:
    """Node -> the nodes that come before it."""
    return {
        name: list(dict.fromkeys(n for _, n in _edges(name, spec, conditions) if n in spec.nodes))
        for name in spec.nodes
    }


def read_tensors(spec: Spec, conditions: Conditions) -> set[Wire]:
    """Tensors that something reads; what is read of a switch is read of its branches."""
    read = {parse_reference(text) for text in spec.file.outputs.values()}
    for name, node in spec.nodes.items():
        read |= {wire for _, wire in _wires(name, node, conditions)}
    for name, node in spec.nodes.items():
        if isinstance(node, SwitchNode):
            shown = [wire.tensor for wire in read if wire.node == name]
            read |= {Wire(branch, tensor) for branch in node.switch for tensor in shown}
    return read


def check_reach(spec: Spec, conditions: Conditions, report: Report) -> None:
    """Inputs and nodes that no output of the pipeline rests on.

    Comes last, and is silent while an edge is not known: it may be the one that leads there.
    """
    if not spec.is_whole or {finding.code for finding in report.findings} & EDGES_UNKNOWN:
        return
    read = read_tensors(spec, conditions)
    for name in spec.file.inputs:
        if Wire("", name) not in read:
            message = f"no node reads the input `{name}`"
            hint = "remove it, or wire it to a node"
            report.add_key(UNUSED_INPUT, message, "inputs", name, hint=hint)
    reached = _reached(spec, conditions)
    for name in spec.nodes:
        if name not in reached:
            message = f"`{name}` reaches no output of the pipeline"
            hint = "remove it, or show one of its tensors under `outputs`"
            report.add_key(UNUSED_NODE, message, "nodes", name, hint=hint)


def _reached(spec: Spec, conditions: Conditions) -> set[str]:
    needs = needs_of(spec, conditions)
    waiting = {parse_reference(text).node for text in spec.file.outputs.values()}
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in needs and name not in reached:
            reached.add(name)
            waiting |= set(needs[name])
    return reached


Place = tuple[Key, ...]


def _wires(name: str, node: NodeEntry, conditions: Conditions) -> Iterator[tuple[Place, Wire]]:
    """Tensors that a node reads, and where it says so."""
    place = ("nodes", name)
    for key, text in node.inputs.items():
        yield (*place, "inputs", key), parse_reference(text)
    if node.foreach is not None:
        yield (*place, "foreach"), parse_reference(node.foreach)
    if name in conditions.guards:
        for clause in conditions.guards[name].clauses:
            for reference in clause.references:
                yield clause.place, reference.wire


def _edges(name: str, spec: Spec, conditions: Conditions) -> Iterator[tuple[Place, str]]:
    """Nodes that come before a node, and where it says so."""
    node = spec.nodes[name]
    for place, wire in _wires(name, node, conditions):
        if wire.node:
            yield place, wire.node
    for index, other in enumerate(node.after):
        if other != name:
            yield ("nodes", name, "after", index), other
    for branch in node.switch if isinstance(node, SwitchNode) else ():
        yield ("nodes", name, "switch", branch), branch
