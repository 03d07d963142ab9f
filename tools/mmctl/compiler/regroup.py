"""Groups of steps -> nodes of their own, with every wire of the graph where it now leads. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mmctl.pipeline.graph import Condition, FusedSteps, Graph, Json, Member, Node, Policy, Wire
from mmctl.pipeline.order import order_of
from mmctl.tensors import DType, TensorSpec, TensorType

Group = tuple[Member, ...]
"""Steps to be made one model, in the order of the graph, with their wires in it."""
Moves = Mapping[Wire, Wire]
"""Wires that lead elsewhere now."""
FREE = -1


def regrouped(graph: Graph, groups: Sequence[Group]) -> Graph:
    """The last step of each group gives its name, and its own names to what it gives."""
    if not groups:
        return graph
    shows = {group[-1].name: _shows(group, graph) for group in groups}
    moves = {
        wire: Wire(node, name) for node, shown in shows.items() for name, wire in shown.items()
    }
    inside = {member.name for group in groups for member in group}
    nodes = [_fused(group, shows[group[-1].name], moves) for group in groups]
    nodes += [rewired(node, moves) for node in graph.nodes if node.name not in inside]
    outputs = {name: moves.get(wire, wire) for name, wire in graph.outputs.items()}
    return replace(graph, nodes=in_order(nodes, graph), outputs=outputs)


def in_order(nodes: Sequence[Node], graph: Graph) -> tuple[Node, ...]:
    by_name = {node.name: node for node in nodes}
    given = [by_name[node.name] for node in graph.nodes if node.name in by_name]
    order = order_of({node.name: list(node.needs()) for node in given})
    return tuple(by_name[name] for name in order.names)


def _shows(group: Group, graph: Graph) -> dict[str, Wire]:
    """What the group gives: all of the last step, and what others read of the rest."""
    names = {member.name for member in group}
    read = {wire for node in graph.nodes if node.name not in names for wire in wires_of(node)}
    read |= set(graph.outputs.values())
    last = group[-1]
    shown = {
        f"{member.name}__{spec.name}": Wire(member.name, spec.name)
        for member in group[:-1]
        for spec in member.gives
        if Wire(member.name, spec.name) in read
    }
    return {**shown, **{spec.name: Wire(last.name, spec.name) for spec in last.gives}}


def wires_of(node: Node) -> Iterator[Wire]:
    yield from node.inputs.values()
    if node.policy.when is not None:
        yield from node.policy.when.wires
    if node.policy.foreach is not None:
        yield node.policy.foreach


def _fused(group: Group, shows: Mapping[str, Wire], moves: Moves) -> Node:
    names = {member.name for member in group}
    types = {Wire(member.name, spec.name): spec.type for member in group for spec in member.gives}
    outer = _read_from_outside(group)
    members = []
    for member in group:
        inputs = {
            key: wire if wire.node in names else Wire("", _input_name(wire))
            for key, wire in member.inputs.items()
        }
        members.append(replace(member, inputs=inputs))
    return Node(
        name=group[-1].name,
        runs=FusedSteps(tuple(members), shows),
        inputs={_input_name(wire): moves.get(wire, wire) for wire in outer},
        takes=tuple(_taken(_input_name(wire), specs) for wire, specs in outer.items()),
        gives=tuple(TensorSpec(name, types[wire]) for name, wire in shows.items()),
    )


def _read_from_outside(group: Group) -> dict[Wire, list[TensorSpec]]:
    """Tensors that the group reads, each with the inputs that it feeds."""
    names = {member.name for member in group}
    found: dict[Wire, list[TensorSpec]] = {}
    for member in group:
        for spec in member.takes:
            wire = member.inputs[spec.name]
            if wire.node not in names:
                found.setdefault(wire, []).append(spec)
    return found


def _input_name(wire: Wire) -> str:
    return f"{wire.node}__{wire.tensor}" if wire.node else wire.tensor


def _taken(name: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    """One input for several: it takes what any of them takes; each checks for itself."""
    optional = all(spec.optional for spec in specs)
    return TensorSpec(name, _common([spec.type for spec in specs]), optional)


def _common(types: Sequence[TensorType]) -> TensorType:
    if len(set(types)) == 1:
        return types[0]
    sizes = zip(*(kind.triton_dims for kind in types), strict=True)
    dims = tuple(axis[0] if len(set(axis)) == 1 else FREE for axis in sizes)
    dtype = DType.BYTES if types[0].dtype.is_text else types[0].dtype
    return TensorType(dtype, () if dims == (1,) else dims, types[0].items)


def rewired(node: Node, moves: Moves) -> Node:
    inputs = {key: moves.get(wire, wire) for key, wire in node.inputs.items()}
    return replace(node, inputs=inputs, policy=_rewired_policy(node.policy, moves))


def _rewired_policy(policy: Policy, moves: Moves) -> Policy:
    when, foreach = policy.when, policy.foreach
    return replace(
        policy,
        when=when and _rewired_condition(when, moves),
        foreach=foreach and moves.get(foreach, foreach),
    )


def _rewired_condition(when: Condition, moves: Moves) -> Condition:
    wires = tuple(moves.get(wire, wire) for wire in when.wires)
    return replace(when, tree=_rewired_tree(when.tree, moves), wires=wires)


def _rewired_tree(tree: Json, moves: Moves) -> Json:
    if tree[0] == "value":
        return tree
    if tree[0] == "ref":
        wire = Wire(tree[1], tree[2])
        moved = moves.get(wire, wire)
        return ["ref", moved.node, moved.tensor, *tree[3:]]
    return [tree[0], *(_rewired_tree(part, moves) for part in tree[1:])]
