"""Edges that make a node wait for nothing: what comes over them was there before.

A step that hands a tensor on unchanged makes everybody wait who reads it there; who reads it where
it comes from does not. So does a step for an input that its function never looks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmctl.diagnostics import Position
from mmctl.documents import Location
from mmctl.pipeline.findings import Report
from mmctl.pipeline.graph import Graph, Node, Policy, StepCall, Wire
from mmctl.pipeline.passing import passed_on, unread
from mmctl.pipeline.source import PipelineSource
from mmctl.pipeline.stepfile import StepFiles


@dataclass(frozen=True, slots=True)
class Needless:
    """`reader` gets its `input` from `wire`, for nothing: the same is in `instead`, or, where that
    is None, nobody looks at it. `path` names the steps that only handed it on.
    """

    reader: str
    input: str
    wire: Wire
    instead: Wire | None
    path: tuple[str, ...]
    position: Position

    @property
    def told(self) -> str:
        if self.instead is None:
            return f"`{self.reader}` never reads its input `{self.input}` ({self.wire})"
        steps = " and ".join(f"`{name}`" for name in self.path)
        hand = "hands" if len(self.path) == 1 else "hand"
        return (
            f"`{self.reader}` waits for {steps}, which only {hand} on `{self.instead}`: "
            f"`{self.input}` may read that"
        )


def needless_edges(graph: Graph, source: PipelineSource) -> tuple[Needless, ...]:
    """In the order of the file. `graph` is the checked one, before anything is fused."""
    functions = _functions(graph, source)
    aliases = dict(_aliases(graph, functions))
    found = []
    for node in graph.nodes:
        for name, wire in node.inputs.items():
            origin, path = _origin(wire, aliases)
            position = source.document.at(*_location(node.name, name))
            if path:
                found.append(Needless(node.name, name, wire, origin, path, position))
            elif wire.node and name in functions.get(node.name, _Function()).unread:
                found.append(Needless(node.name, name, wire, None, (), position))
    return tuple(sorted(found, key=lambda edge: (edge.position.line, edge.position.column)))


def rewired(text: str, edges: Sequence[Needless], source: PipelineSource) -> str:
    """pipeline.yaml with each of the edges that has an `instead` reading that. Nothing else of the
    text changes.
    """
    lines = text.splitlines(keepends=True)
    places = [edge for edge in edges if edge.instead is not None]
    for edge in sorted(places, key=lambda e: (e.position.line, e.position.column), reverse=True):
        row, column = edge.position.line - 1, edge.position.column - 1
        line = lines[row]
        quote = line[column] if line[column : column + 1] in ('"', "'") else ""
        before = f"{quote}{edge.wire}"
        if line.startswith(before, column):
            lines[row] = f"{line[:column]}{quote}{edge.instead}{line[column + len(before) :]}"
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class _Function:
    passed_on: Mapping[str, str] | None = None
    unread: frozenset[str] = frozenset()


def _functions(graph: Graph, source: PipelineSource) -> dict[str, _Function]:
    """By node, for steps that are functions of the user's."""
    files = StepFiles(source, Report(source.document))
    found = {}
    for node in graph.nodes:
        if isinstance(node.runs, StepCall) and node.runs.is_own:
            tree = files.definition(node.runs.function)
            if tree is not None:
                found[node.name] = _Function(passed_on(tree), unread(tree))
    return found


def _aliases(
    graph: Graph, functions: Mapping[str, _Function]
) -> Iterator[tuple[Wire, tuple[Wire, str]]]:
    """Outputs that are an input, of the same type, of nodes about which nothing else is said."""
    for node in graph.nodes:
        for output, parameter in (functions.get(node.name, _Function()).passed_on or {}).items():
            wire = node.inputs.get(parameter)
            made = Wire(node.name, output)
            if wire is not None and _is_plain(node) and _same(graph, made, wire):
                yield made, (wire, node.name)


def _is_plain(node: Node) -> bool:
    """A condition or a fallback may give its readers something else."""
    return node.policy == Policy()


def _same(graph: Graph, made: Wire, wire: Wire) -> bool:
    known = {spec.name for spec in graph.node(made.node).gives}
    return made.tensor in known and graph.spec(made).type == graph.spec(wire).type


def _origin(wire: Wire, aliases: Mapping[Wire, tuple[Wire, str]]) -> tuple[Wire, tuple[str, ...]]:
    path: list[str] = []
    while wire in aliases:
        wire, step = aliases[wire]
        path.append(step)
    return wire, tuple(path)


def _location(node: str, name: str) -> Location:
    return ("nodes", node, "inputs", name)
