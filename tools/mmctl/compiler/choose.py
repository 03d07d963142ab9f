"""Which form a pipeline takes: the cheapest that keeps what it declares. Pure.

CPU time of one and the same graph: fused 1, ensemble 2.9, bls 5.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mmctl.pipeline.graph import (
    Form,
    FusedSteps,
    Graph,
    Member,
    Merge,
    ModelCall,
    Node,
    StepCall,
    Wire,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """`reason` completes the sentence "`form` because ..."."""

    form: Form
    reason: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """The pinned form cannot keep the declaration: why, and where that stands."""

    reason: str
    hint: str


SHOWN_DEMANDS = 3


def choose_form(graph: Graph) -> Choice | Impossible:
    """`graph` is as it will be built: what can be fused is one node already."""
    demands = list(find_demands(graph))
    pinned = graph.rules.form
    if pinned == "bls":
        return Choice("bls", "`form: bls` says so")
    if demands:
        return _only_bls(demands, pinned)
    if pinned == "ensemble":
        return Choice("ensemble", "`form: ensemble` says so")
    if steps := one_step(graph):
        return Choice("fused", _fused_reason(steps))
    if pinned == "fused":
        return _unfusable(graph)
    return Choice("ensemble", "it is a static graph: no policy, no condition, no fan-out")


def _only_bls(demands: list[str], pinned: Form | None) -> Choice | Impossible:
    shown = ", ".join(dict.fromkeys(demands[:SHOWN_DEMANDS]))
    more = f" and {len(demands) - SHOWN_DEMANDS} more" if len(demands) > SHOWN_DEMANDS else ""
    if pinned is None:
        return Choice("bls", f"of {shown}{more}")
    reason = f"`form: {pinned}` cannot keep {demands[0]}"
    return Impossible(reason, f"remove `form`, or {shown}{more}")


def find_demands(graph: Graph) -> Iterator[str]:
    """Declarations that only the bls form can keep, in the order of the file."""
    rules = graph.rules
    for key, is_used in (
        ("deadline_ms", rules.deadline_ms is not None),
        ("max_pending", rules.max_pending is not None),
        ("provenance", rules.provenance),
    ):
        if is_used:
            yield f"`{key}`"
    for node in graph.nodes:
        yield from _demands_of(graph, node)


def _demands_of(graph: Graph, node: Node) -> Iterator[str]:
    if isinstance(node.runs, Merge):
        yield f"`{node.name}.switch`"
    for key in node.policy.used:
        yield f"`{node.name}.{key}`"
    for spec in node.gives:
        if spec.type.items:
            yield f"the list tensor `{node.name}.{spec.name}`"
    if isinstance(node.runs, ModelCall) and graph.max_batch and not node.runs.max_batch:
        yield f"`{node.name}`, which takes no batch"


def one_step(graph: Graph) -> FusedSteps | None:
    """The steps of a graph that is one Python model; a step served in its own way stays apart."""
    if len(graph.nodes) > 1:
        return None
    [node] = graph.nodes
    if isinstance(node.runs, StepCall) and node.runs.is_served_plainly:
        inputs = {name: Wire("", wire.tensor) for name, wire in node.inputs.items()}
        member = Member(node.name, node.runs, inputs, node.takes, node.gives)
        shows = {spec.name: Wire(node.name, spec.name) for spec in node.gives}
        return FusedSteps((member,), shows)
    return node.runs if isinstance(node.runs, FusedSteps) else None


def _fused_reason(steps: FusedSteps) -> str:
    count = len(steps.members)
    return "it is one Python step" if count == 1 else f"its {count} nodes are Python steps"


def _unfusable(graph: Graph) -> Impossible:
    """The first node that keeps a pipeline from being one model."""
    calls = [node.name for node in graph.nodes if isinstance(node.runs, ModelCall)]
    if calls:
        return Impossible(
            f"`form: fused` makes one Python model, but `{calls[0]}` is a model of its own",
            "remove `form`; for two ONNX models that follow each other there is `fuse: [a, b]`",
        )
    names = ", ".join(f"`{name}`" for node in graph.nodes for name in node.covers)
    return Impossible(
        f"`form: fused` makes one Python model, which {names} cannot be",
        "a step with `instances`, `batching` or `batch: false` stays a model of its own",
    )
