"""Which nodes may be absent on some rows, and who cannot take that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mmctl.documents import Key
from mmctl.pipeline.conditions import Conditions
from mmctl.pipeline.findings import ABSENT
from mmctl.pipeline.graph import Wire
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.nodes.switch import SwitchNode
from mmctl.pipeline.scope import Scope, parse_reference
from mmctl.pipeline.spec import Spec

MERGE = "merge it with another node in a `switch`, or read it as `x?` in a step"


def check_absence(
    spec: Spec, order: Sequence[str], outputs: Mapping[str, Wire], found: Conditions, scope: Scope
) -> None:
    """Findings about values that may be absent where something must be."""
    for name, node in spec.nodes.items():
        for place, wire, taker in _needed(name, node, scope):
            if _is_lax(wire.node, spec):
                message = f"`{taker}` needs `{wire}`, but `{wire.node}` is not required"
                hint = "take it as `x?` in a step, or give it `on_error` in place of `required`"
                scope.report.add(ABSENT, message, *place, hint=hint)
    absent = _absences(spec, order, found, scope)
    for name, wire in outputs.items():
        if _is_lax(wire.node, spec):
            message = f"`{name}` shows `{wire}`, but `{wire.node}` is not required"
            hint = "give it `on_error` in place of `required: false`"
            scope.report.add(ABSENT, message, "outputs", name, hint=hint)
        elif wire.node in absent:
            message = f"`{name}` shows `{wire}`, which is absent where {absent[wire.node]}"
            hint = f"{MERGE}; `on_error` is for failures"
            scope.report.add(ABSENT, message, "outputs", name, hint=hint)


def _needed(
    name: str, node: NodeEntry, scope: Scope
) -> Iterator[tuple[tuple[Key, ...], Wire, str]]:
    """What a node cannot do without: where that stands, the tensor, and what takes it."""
    needed = {key: text for key, text in node.inputs.items() if not scope.may_lack(name, key)}
    for key, text in needed.items():
        yield ("nodes", name, "inputs", key), parse_reference(text), f"{name}.{key}"
    if node.foreach is not None and node.foreach not in needed.values():
        yield ("nodes", name, "foreach"), parse_reference(node.foreach), f"{name}.foreach"


def _is_lax(node: str, spec: Spec) -> bool:
    return node in spec.nodes and not spec.nodes[node].required


def _absences(spec: Spec, order: Sequence[str], found: Conditions, scope: Scope) -> dict[str, str]:
    """Node -> where it may be absent, as words that follow "where"."""
    absent: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for name in order:
        node = spec.nodes[name]
        needed = [wire for _, wire, _ in _needed(name, node, scope) if not _is_lax(wire.node, spec)]
        wires = [*needed, *found.wires(name)]
        flowing = [absent[wire.node] for wire in wires if wire.node in absent]
        own = [f"`{name}` fails: it is not required"] if not node.required else []
        if isinstance(node, SwitchNode):
            flowing = [elsewhere[branch] for branch in node.switch if branch in elsewhere]
            own += [] if node.has_else else [f"no condition of `{name}` holds: it has no `else`"]
        reasons = [*flowing, *own]
        if reasons:
            elsewhere[name] = reasons[0]
        if (guard := found.guards.get(name)) is not None:
            by = f"`{guard.switch}` takes another branch" if guard.switch else ""
            reasons.insert(0, by or f"`{name}.when` is false")
        if reasons:
            absent[name] = reasons[0]
    return absent
