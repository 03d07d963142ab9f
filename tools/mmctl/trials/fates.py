"""What becomes of every node of a graph when one fails. Pure.

For a row on which the failing node runs; rows on which it does not are as if nothing had failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from mmctl.pipeline.graph import Graph, Merge, Node


class Fate(Enum):
    """What a node leaves. ABSORBED: it failed, and its `on_error` stands in. DROPPED: it failed,
    and it is not required. ABSENT: it did not run, for what it needs was dropped.
    """

    RUNS = auto()
    FAILS = auto()
    ABSORBED = auto()
    DROPPED = auto()
    ABSENT = auto()


Fates = Mapping[str, Fate]
GONE = (Fate.DROPPED, Fate.ABSENT)


def fates_of(graph: Graph, failing: str, *, too_late: bool = False) -> Fates:
    """`too_late`: the pipeline's own deadline is over by then, so nothing that comes after the
    node is started.
    """
    fates: dict[str, Fate] = {}
    after = {failing}
    for node in graph.nodes:
        comes_after = _waits(node, after)
        after |= {node.name} if comes_after else set()
        is_refused = too_late and comes_after and not isinstance(node.runs, Merge)
        if node.name == failing or is_refused:
            fates[node.name] = _failed(node)
        else:
            fates[node.name] = _fate(node, fates)
    return fates


def _waits(node: Node, after: set[str]) -> bool:
    """Whether a node has to wait for one of these; a quorum may do without."""
    quorum = node.policy.quorum
    members = quorum.of if quorum else ()
    if any(name in after for name in node.needs() if name not in members):
        return True
    return quorum is not None and sum(name not in after for name in members) < quorum.need


def lucky_nodes(graph: Graph) -> frozenset[str]:
    """Nodes whose value depends on which nodes of a quorum are the quickest."""
    found: set[str] = set()
    for node in graph.nodes:
        quorum = node.policy.quorum
        is_choice = quorum is not None and quorum.need < len(quorum.of)
        if is_choice or any(name in found for name in node.needs()):
            found.add(node.name)
    return frozenset(found)


def _fate(node: Node, fates: Fates) -> Fate:
    quorum = node.policy.quorum
    members = quorum.of if quorum else ()
    if any(fates[name] is Fate.FAILS for name in node.needs() if name not in members):
        return _failed(node)
    if _is_absent(node, fates):
        return Fate.ABSENT
    if quorum and sum(_has_value(fates[name]) for name in members) < quorum.need:
        return _failed(node)
    return Fate.RUNS


def _failed(node: Node) -> Fate:
    if node.policy.on_error is not None:
        return Fate.ABSORBED
    return Fate.FAILS if node.policy.required else Fate.DROPPED


def _has_value(fate: Fate) -> bool:
    return fate in (Fate.RUNS, Fate.ABSORBED)


def _is_absent(node: Node, fates: Fates) -> bool:
    """For want of an input; a condition on nothing is false; a switch has nothing to show when
    the branch that was taken has nothing.
    """
    if isinstance(node.runs, Merge):
        return any(fates[name] in GONE for name in node.runs.branches)
    needed = [
        node.inputs[spec.name]
        for spec in node.takes
        if spec.name in node.inputs and not spec.optional
    ]
    needed += node.policy.when.wires if node.policy.when else ()
    needed += [node.policy.foreach] if node.policy.foreach else ()
    return any(fates[wire.node] in GONE for wire in needed if wire.node)
