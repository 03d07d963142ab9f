"""A pipeline as the simulation wants it: the models that Triton runs for a request, pipelines
that it calls and theirs among them, and what waits for what. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from mmctl.compiler import Compiled
from mmctl.loadtest.simulate import Node
from mmctl.pipeline.graph import Merge, ModelCall
from mmctl.triton.config import EnsembleStep

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pipelines:
    """What has parts, by name: pipelines that mmctl compiled, and ensembles of the user's own."""

    compiled: Mapping[str, Compiled]
    ensembles: Mapping[str, Sequence[EnsembleStep]]


@dataclass(frozen=True, slots=True)
class _Call:
    """A node of one pipeline: `model` None only joins what others give, as a switch does."""

    name: str
    model: str | None
    needs: Names
    in_flight: int | None = None


def nodes_of(model: str, pipelines: Pipelines) -> tuple[Node, ...]:
    """Of a model that has no parts: itself. A pipeline answers once all of its nodes have."""
    nodes, _ = _expanded(model, "", (), None, pipelines)
    return nodes


def with_counts(nodes: Sequence[Node], rows: Mapping[str, float]) -> tuple[Node, ...]:
    """With what was counted: `rows` by model for each request. A model that several nodes call
    has them in equal parts.
    """
    callers: dict[str, int] = {}
    for node in nodes:
        callers[node.model] = callers.get(node.model, 0) + 1

    def counted(node: Node) -> Node:
        count = rows.get(node.model, 0.0) / callers[node.model]
        if count < 0.98:
            return replace(node, share=count)
        return replace(node, rows=max(1, round(count)))

    return tuple(counted(node) for node in nodes)


def _expanded(
    model: str, prefix: str, after: Names, in_flight: int | None, pipelines: Pipelines
) -> tuple[tuple[Node, ...], Names]:
    """Nodes, and those of them that nobody waits for within."""
    calls = _calls_of(model, pipelines)
    if calls is None:
        name = prefix.removesuffix("/") or model
        return (Node(name, model, after, in_flight=in_flight),), (name,)
    nodes: list[Node] = []
    ends: dict[str, Names] = {}
    for call in calls:
        waits = tuple(dict.fromkeys(end for name in call.needs for end in ends[name])) or after
        if call.model is None:
            ends[call.name] = waits
            continue
        inner, ends[call.name] = _expanded(
            call.model, f"{prefix}{call.name}/", waits, call.in_flight, pipelines
        )
        nodes += inner
    needed = {name for call in calls for name in call.needs}
    last = (end for call in calls if call.name not in needed for end in ends[call.name])
    return tuple(nodes), tuple(dict.fromkeys(last))


def _calls_of(model: str, pipelines: Pipelines) -> list[_Call] | None:
    """In an order in which they can run; None for what has no parts."""
    if (compiled := pipelines.compiled.get(model)) is not None and compiled.form != "fused":
        return _of_graph(compiled)
    if (steps := pipelines.ensembles.get(model)) is not None:
        return _of_steps(steps)
    return None


def _of_graph(compiled: Compiled) -> list[_Call]:
    graph = compiled.graph
    plan = compiled.models[-1].plans.get("plan.json", {"nodes": []})
    limits = {node["name"]: node.get("max_in_flight") for node in plan["nodes"]}
    calls = []
    for node in graph.nodes:
        callee: str | None
        match node.runs:
            case Merge():
                callee = None
            case ModelCall(model=name):
                callee = name
            case _:
                callee = f"{graph.name}__{node.name}"
        calls.append(_Call(node.name, callee, tuple(node.needs()), limits.get(node.name)))
    return calls


def _of_steps(steps: Sequence[EnsembleStep]) -> list[_Call]:
    """Tensors join the steps of an ensemble. Raises ValueError for steps in a circle."""
    makers = {tensor: n for n, step in enumerate(steps) for tensor in step.outputs.values()}
    needs = [
        tuple(dict.fromkeys(makers[t] for t in step.inputs.values() if t in makers))
        for step in steps
    ]
    return [
        _Call(
            f"{n}_{steps[n].model}",
            steps[n].model,
            tuple(f"{m}_{steps[m].model}" for m in needs[n]),
        )
        for n in TopologicalSorter(dict(enumerate(needs))).static_order()
    ]
