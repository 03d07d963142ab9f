"""Steps that may lack every input get one more: Triton takes no request without any. Pure."""

from __future__ import annotations

from dataclasses import replace

from mmctl.pipeline.graph import FusedSteps, Graph, Node, StepCall, Wire
from mmctl.tensors import DType, TensorSpec, TensorType

ROWS = TensorSpec("rows__", TensorType(DType.UINT8))
"""Says nothing but how many rows there are: the runner makes it, and no function gets it."""


def with_rows(graph: Graph) -> Graph:
    nodes = [_with_rows(node) if _may_lack_all(node) else node for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


def _may_lack_all(node: Node) -> bool:
    """A node with `foreach` has the list that it runs over."""
    is_step = isinstance(node.runs, StepCall | FusedSteps)
    return is_step and not node.policy.foreach and all(spec.optional for spec in node.takes)


def _with_rows(node: Node) -> Node:
    inputs = {**node.inputs, ROWS.name: Wire("", ROWS.name)}
    return replace(node, inputs=inputs, takes=(*node.takes, ROWS))
