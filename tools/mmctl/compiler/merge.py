"""Which ONNX models become one, as `fuse:` says; the answers stay the same. Pure.

`fuse: [a, b]` makes one model of the nodes that it names, or tells what forbids it. `fuse: auto`
merges chains: each model but the last is read by the next one alone, which then waits for nothing
that it did not wait for before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mmctl.compiler.merged import SERVED_ALIKE, Group, OnnxModel, kept_wires, merged_node, models_of
from mmctl.compiler.regroup import in_order, rewired
from mmctl.pipeline.graph import Graph, ModelCall, Node, StepCall, Wire
from mmctl.tensors import TensorType


def merge_models(graph: Graph, onnx: Mapping[str, OnnxModel]) -> Graph:
    """Each group as one node, named after its last model.

    `onnx` has the models that can be merged. Raises ValueError when those that `fuse:` names
    cannot be one: the message says why.
    """
    groups = _Models(graph, onnx).groups()
    moves: dict[Wire, Wire] = {}
    nodes: list[Node] = []
    for group in groups:
        merged, shown = merged_node(graph, group, onnx)
        nodes.append(merged)
        moves |= {wire: Wire(merged.name, name) for name, wire in shown.items()}
    inside = {node.name for group in groups for node in group}
    nodes += [node for node in graph.nodes if node.name not in inside]
    outputs = {name: moves.get(wire, wire) for name, wire in graph.outputs.items()}
    nodes = [rewired(node, moves) for node in nodes]
    return replace(graph, nodes=in_order(nodes, graph), outputs=outputs) if groups else graph


class _Models:
    """What there is to know about a graph to group its models.

    `before` maps nodes to all that come before them; `named` are those that policies name.
    """

    def __init__(self, graph: Graph, onnx: Mapping[str, OnnxModel]) -> None:
        self.graph = graph
        self.onnx = onnx
        self.before = graph.before()
        self.named = {name for node in graph.nodes for name in node.watches()}
        self.shown = {wire.node for wire in graph.outputs.values()}

    def groups(self) -> list[Group]:
        fuse = self.graph.rules.fuse
        if fuse == "auto":
            return list(self._chains())
        group = tuple(node for node in self.graph.nodes if node.name in fuse)
        if not any(isinstance(node.runs, ModelCall) for node in group):
            return []
        if problem := next(self._problems(group), None):
            raise ValueError(problem)
        return [group]

    def _chains(self) -> Iterator[Group]:
        taken: set[str] = set()
        for node in self.graph.nodes:
            if node.name in taken:
                continue
            chain: Group = (node,)
            while (longer := self._longer(chain)) is not None:
                chain = longer
            if len(chain) > 1:
                taken |= {member.name for member in chain}
                yield chain

    def _longer(self, chain: Group) -> Group | None:
        last = chain[-1]
        readers = [node for node in self.graph.nodes if last.name in node.needs()]
        if len(readers) != 1 or last.name in self.shown:
            return None
        [reader] = readers
        waits = self.before[reader.name] - self.before[last.name] != {last.name}
        longer = (*chain, reader)
        return None if waits or next(self._problems(longer), None) else longer

    def _problems(self, group: Group) -> Iterator[str]:
        """Why the nodes cannot be one model."""
        for node in group:
            if own_way := self._own_way(node):
                yield f"`{node.name}` cannot be merged: {own_way}"
                return
        first, *others = group
        for other in others:
            yield from self._served_otherwise(first, other)
        yield from _unequal_wires(group)
        yield from _unjoined(group)
        yield from self._between(group)
        yield from self._changes(group)

    def _own_way(self, node: Node) -> str | None:
        if isinstance(node.runs, StepCall):
            return "it is a Python step, and another node that `fuse` names is a model"
        if not isinstance(node.runs, ModelCall):
            return "it calls no model"
        if node.policy.used:
            return f"it has `{node.policy.used[0]}`"
        if node.name in self.named:
            return "a policy of another node names it"
        if node.runs.model not in self.onnx:
            return f"`{node.runs.model}` is no ONNX model that mmctl exported"
        return None if node.runs.max_batch else f"`{node.runs.model}` takes no batch"

    def _served_otherwise(self, one: Node, other: Node) -> Iterator[str]:
        mine, theirs = models_of((one, other), self.onnx)
        for key in SERVED_ALIKE:
            if getattr(mine.options, key) != getattr(theirs.options, key):
                yield f"`{one.name}` and `{other.name}` cannot be merged: they differ in `{key}`"

    def _between(self, group: Group) -> Iterator[str]:
        inside = {node.name for node in group}
        before = set().union(*(self.before[name] for name in inside))
        for name in (node.name for node in self.graph.nodes if node.name in before - inside):
            if self.before[name] & inside:
                yield f"{_shown(group)} cannot be merged: `{name}` stands between them"

    def _changes(self, group: Group) -> Iterator[str]:
        """A tensor that is read outside is there when its own model has run, or the whole group."""
        inside = {node.name for node in group}
        early = {wire.node for wire in kept_wires(self.graph, group)} - {group[-1].name}
        before = set().union(*(self.before[name] for name in inside))
        for node in self.graph.nodes if early else ():
            policy = node.policy
            if node.name in before and (policy.when or not policy.required):
                why = f"rows that `{node.name}` skips would change"
                yield f"{_shown(group)} cannot be merged: {why}"
            if policy.absorbs and self.before[node.name] & inside:
                why = f"`{node.name}` would take other failures for its own"
                yield f"{_shown(group)} cannot be merged: {why}"


def _shown(group: Group) -> str:
    return " and ".join(f"`{node.name}`" for node in group)


def _unequal_wires(group: Group) -> Iterator[str]:
    gives = {Wire(node.name, spec.name): spec.type for node in group for spec in node.gives}
    for node in group:
        for spec in node.takes:
            wire = node.inputs.get(spec.name)
            if wire in gives and not _equal(gives[wire], spec.type):
                yield (
                    f"`{wire.node}` and `{node.name}` cannot be merged: `{wire}` is "
                    f"{gives[wire]}, and `{node.name}.{spec.name}` is {spec.type}"
                )


def _equal(one: TensorType, other: TensorType) -> bool:
    mine, theirs = ((kind.dtype.triton, kind.triton_dims) for kind in (one, other))
    return mine == theirs


def _unjoined(group: Group) -> Iterator[str]:
    """The first node that no wire joins to the first one, directly or through others."""
    edges = [(node.name, wire.node) for node in group for wire in node.inputs.values()]
    inside = {node.name for node in group}
    joined = {group[0].name}
    for _ in group:
        for edge in edges:
            joined |= inside & {*edge} if joined & {*edge} else set()
    for node in group:
        if node.name not in joined:
            yield f"`{group[0].name}` and `{node.name}` cannot be merged: no wire joins them"
            return
