"""Plans and configs in which stubs stand in for nodes. Pure.

A pipeline is changed to call the stub, rather than the model replaced: others that call it keep it,
and it need not be loaded again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mmctl.pipeline.graph import Graph, Json, ModelCall, Node, Wire
from mmctl.tensors import TensorSpec
from mmctl.trials.promises import Promise
from mmctl.trials.stubs import VERSION, Stub, constant_stub
from mmctl.triton.config import EnsembleStep, ModelConfig

POLICIES = ("timeout_ms", "retries", "on_error", "required", "hedge_ms", "foreach")
NEVER = ["==", ["value", 0], ["value", 1]]


@dataclass(frozen=True, slots=True)
class Callee:
    """The model that runs a node; version -1: whichever is the latest."""

    model: str
    version: int


def callee_in_plan(plan: Json, node: str) -> Callee:
    model = _entry(plan, node)["model"]
    return Callee(model, plan["pins"].get(model, -1))


def plan_with_stub(plan: Json, node: str, stub: str) -> Json:
    """plan.json in which the stub runs the node."""
    plan = copy.deepcopy(plan)
    _entry(plan, node)["model"] = stub
    plan["pins"][stub] = VERSION
    return plan


def step_of(config: ModelConfig, graph: Graph, node: Node) -> EnsembleStep:
    """The step of an ensemble that runs a node; two nodes may run one model."""
    model = node.runs.model if isinstance(node.runs, ModelCall) else f"{graph.name}__{node.name}"
    gives = {name for name, wire in graph.outputs.items() if wire.node == node.name}
    gives |= {str(Wire(node.name, spec.name)) for spec in node.gives}
    steps = [step for step in config.steps if step.model == model]
    return next(step for step in steps if gives & set(step.outputs.values()))


def config_with_stub(config: ModelConfig, step: EnsembleStep, stub: str) -> ModelConfig:
    """The config of an ensemble in which the stub runs a step."""
    stand_in = replace(step, model=stub, version=VERSION)
    return replace(config, steps=tuple(stand_in if s is step else s for s in config.steps))


def constants_for(graph: Graph, failing: str, promise: Promise) -> dict[str, Stub]:
    """By node, stubs that give what its `on_error` declares."""
    return {name: _constant(graph, graph.node(name), failing) for name in promise.absorbed}


def _constant(graph: Graph, node: Node, failing: str) -> Stub:
    """The failing node reads what it reads, for that says on which rows it runs; one that fails
    with it stands on its own.
    """
    inputs = _specs(graph, node) if node.name == failing else graph.inputs[:1]
    values = node.policy.on_error or {}
    outputs = [graph.spec(Wire(node.name, name)) for name in values]
    return constant_stub(
        f"{graph.name}__{node.name}__constant", inputs, outputs, values, graph.max_batch
    )


def _specs(graph: Graph, node: Node) -> list[TensorSpec]:
    """Inputs of a node's callee; lists go to it whole."""
    found = []
    for spec in node.takes:
        if (wire := node.inputs.get(spec.name)) is not None:
            is_list = node.policy.foreach is not None and graph.spec(wire).type.items
            kind = graph.spec(wire).type if is_list else spec.type
            found.append(replace(spec, type=kind))
    return found


def reference_plan(
    plan: Json, graph: Graph, failing: str, promise: Promise, stubs: Mapping[str, Stub]
) -> Json:
    """plan.json of a pipeline that answers as the declaration says, without anything failing:
    nodes that absorb a failure give their values, those that are not required never run.
    """
    plan = copy.deepcopy(plan)
    for name in promise.dropped:
        _entry(plan, name)["when"] = NEVER
    for name, stub in stubs.items():
        entry = _entry(plan, name)
        for key in POLICIES:
            entry.pop(key, None)
        entry |= {"model": stub.name, "max_batch": graph.max_batch}
        entry["inputs"] = list(_inputs(graph, entry, name == failing))
        if name != failing:
            entry.pop("quorum", None)
            entry["after"] = []
            if _looks_at(entry.get("when"), _behind(graph, failing)):
                del entry["when"]
        plan["pins"][stub.name] = VERSION
    return plan


def _inputs(graph: Graph, entry: Json, is_own: bool) -> Iterator[Json]:
    if is_own:
        for item in entry["inputs"]:
            yield {key: value for key, value in item.items() if key != "each"}
        return
    first = graph.inputs[0].name
    yield {"name": first, "node": "", "tensor": first}


def _behind(graph: Graph, failing: str) -> set[str]:
    """The failing node and all that comes after it."""
    found = {failing}
    for node in graph.nodes:
        if any(name in found for name in node.needs()):
            found.add(node.name)
    return found


def _looks_at(tree: Json, nodes: set[str]) -> bool:
    if not isinstance(tree, list):
        return False
    if tree[0] == "ref":
        return tree[1] in nodes
    return any(_looks_at(part, nodes) for part in tree[1:])


def _entry(plan: Json, node: str) -> Json:
    return next(entry for entry in plan["nodes"] if entry["name"] == node)
