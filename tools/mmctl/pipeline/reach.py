"""What leads where: circles, inputs that nothing reads, nodes whose work nobody sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mmctl.pipeline.findings import (
    CYCLE,
    EXPRESSION,
    MISSING_INPUT,
    OUTPUT_IS_INPUT,
    POLICY,
    STEP_PARAMETERS,
    UNKNOWN_REFERENCE,
    UNUSED_INPUT,
    UNUSED_NODE,
    Report,
)
from mmctl.pipeline.graph import Wire
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.policies import policy_wires
from mmctl.pipeline.scope import parse_reference
from mmctl.pipeline.spec import Spec

EDGES_UNKNOWN = {
    CYCLE, EXPRESSION, MISSING_INPUT, OUTPUT_IS_INPUT, POLICY, STEP_PARAMETERS, UNKNOWN_REFERENCE,
}  # fmt: skip
"""Findings about an edge that is missing or leads elsewhere than it was meant to."""


def check_circles(circles: Iterable[Sequence[str]], spec: Spec, report: Report) -> None:
    """A finding for each circle, where the edge that closes it stands."""
    for circle in circles:
        taker, giver = circle[-1], circle[-2]
        report.add(
            CYCLE,
            f"nodes feed each other in a circle: {' -> '.join(circle)}",
            *_place_of_edge(taker, giver, spec),
            hint=f"remove one input of `{taker}`, or split it in two nodes",
        )


def needs_of(spec: Spec) -> dict[str, list[str]]:
    """Node -> the nodes that come before it."""
    return {
        name: [n for n in dict.fromkeys(_nodes_read(node)) if n in spec.nodes]
        for name, node in spec.nodes.items()
    }


def check_reach(spec: Spec, report: Report) -> None:
    """Inputs and nodes that no output of the pipeline rests on.

    Comes last, and is silent while an edge is not known: it may be the one that leads there.
    """
    found = {finding.code for finding in report.findings}
    if not spec.is_whole or "switch" in spec.kinds.values() or found & EDGES_UNKNOWN:
        return
    read = {wire for node in spec.nodes.values() for wire in _wires(node)}
    for name in spec.file.inputs:
        if Wire("", name) not in read:
            message = f"no node reads the input `{name}`"
            hint = "remove it, or wire it to a node"
            report.add_key(UNUSED_INPUT, message, "inputs", name, hint=hint)
    reached = _reached(spec)
    for name in spec.nodes:
        if name not in reached:
            message = f"`{name}` reaches no output of the pipeline"
            hint = "remove it, or show one of its tensors under `outputs`"
            report.add_key(UNUSED_NODE, message, "nodes", name, hint=hint)


def _reached(spec: Spec) -> set[str]:
    needs = needs_of(spec)
    waiting = {parse_reference(text).node for text in spec.file.outputs.values()}
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in needs and name not in reached:
            reached.add(name)
            waiting |= set(needs[name])
    return reached


def _wires(node: NodeEntry) -> Iterator[Wire]:
    yield from (parse_reference(text) for text in node.inputs.values())
    yield from policy_wires(node)


def _nodes_read(node: NodeEntry) -> Iterator[str]:
    yield from (wire.node for wire in _wires(node) if wire.node)
    yield from node.after


def _place_of_edge(taker: str, giver: str, spec: Spec) -> tuple[str, ...]:
    for key, text in spec.nodes[taker].inputs.items():
        if parse_reference(text).node == giver:
            return ("nodes", taker, "inputs", key)
    return ("nodes", taker)
