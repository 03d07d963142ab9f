"""Graph -> a model of the Python backend that calls the nodes itself, and the step models.

Only data is made here, plan.json; the runner that reads it is shipped as it is. A plan names its
nodes in an order in which they can run; `pins` and `digests` of called models are added when their
locks are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmctl.compiler.rows import ROWS
from mmctl.compiler.steps import StepModel, shipped, step_model
from mmctl.files import digest_of
from mmctl.pipeline.graph import FusedSteps, Graph, Merge, ModelCall, Node, Policy, StepCall, Wire
from mmctl.tensors import DType, Signature, TensorSpec, TensorType
from mmctl.triton.config import InstanceGroup, ModelConfig
from mmctl.triton.generate import config_tensor
from mmctl.triton.releases import Release
from mmctl.triton.repository import CONFIG, GeneratedModel, file_digests

SCHEMA = 1
RUNNER = "bls_model"
PARTS = (
    "bls_cache", "bls_calls", "bls_conditions", "bls_parts", "bls_plan", "bls_rows", "bls_run",
    "bls_story", "bls_threads", "bls_values", "bls_work", "model_counters", "item_lists",
)  # fmt: skip
PROVENANCE = TensorSpec("provenance", TensorType(DType.STRING))

CALLS_AT_ONCE = 32
"""Shared out among the nodes of a pipeline: a call holds one of the threads that Triton has for
BLS in each instance, 32 unless it is told otherwise.
"""
MOST_IN_FLIGHT, LEAST_IN_FLIGHT = 8, 2
CACHE_BYTES = 64 * 1024**2
"""Of answers that an instance of a pipeline keeps for nodes with `cache`."""


def to_bls(graph: Graph, origin: str, release: Release) -> tuple[GeneratedModel, ...]:
    """Step models in the order they run, the pipeline's own model last."""
    models = {
        step.node: step_model(step, pipeline_max_batch=graph.max_batch, origin=origin)
        for step in _steps(graph)
    }
    return (*models.values(), _pipeline_model(graph, models, origin, release))


def wrong_tensors(graph: Graph) -> Iterator[Wire]:
    """Tensors that the runner cannot look into: it is Python, and numpy has no bf16."""
    wires = [Wire("", spec.name) for spec in graph.inputs]
    wires += [Wire(node.name, name) for node in graph.nodes for name in _read_of(graph, node.name)]
    yield from (wire for wire in wires if graph.spec(wire).type.dtype is DType.BF16)


def _steps(graph: Graph) -> Iterator[StepModel]:
    for node in graph.nodes:
        if isinstance(node.runs, StepCall | FusedSteps):
            name = f"{graph.name}__{node.name}"
            yield StepModel(name, node.name, node.runs, node.takes, node.gives)


def _pipeline_model(
    graph: Graph, steps: Mapping[str, GeneratedModel], origin: str, release: Release
) -> GeneratedModel:
    told = (PROVENANCE,) if graph.rules.provenance else ()
    signature = Signature(graph.inputs, (*graph.output_specs(), *told), graph.max_batch)
    config = ModelConfig(
        name=graph.name,
        backend="python",
        default_model_filename="model.py",
        max_batch_size=graph.max_batch,
        inputs=tuple(config_tensor(spec) for spec in signature.inputs),
        outputs=tuple(config_tensor(spec) for spec in signature.outputs),
        instances=(InstanceGroup(1, "KIND_CPU"),),
    )
    files = {"model.py": shipped(RUNNER), **{f"{part}.py": shipped(part) for part in PARTS}}
    plan = _plan(graph, steps, release)
    return GeneratedModel(
        name=graph.name,
        configs={CONFIG: config},
        signature=signature,
        origin=origin,
        own_key=digest_of({"plan": plan, "files": file_digests(files)}),
        files=files,
        calls=tuple(dict.fromkeys(n["model"] for n in plan["nodes"] if n.get("model"))),
        plans={"plan.json": plan},
    )


def _plan(graph: Graph, steps: Mapping[str, GeneratedModel], release: Release) -> dict[str, Any]:
    """plan.json without its pins, as bls_plan.py reads it."""
    rules = graph.rules
    is_cached = any(node.policy.cache is not None for node in graph.nodes)
    settings = {
        "deadline_ms": rules.deadline_ms,
        "max_pending": rules.max_pending,
        "cache_bytes": (rules.cache_bytes or CACHE_BYTES) if is_cached else None,
    }
    return {
        "schema": SCHEMA,
        "batched": graph.max_batch > 0,
        "answers_late": release.decoupled_sender_in_default_mode,
        "provenance": rules.provenance,
        **{key: value for key, value in settings.items() if value is not None},
        "inputs": [_tensor(spec) for spec in graph.inputs],
        **({"rows": _tensor(ROWS)} if any(ROWS in n.takes for n in graph.nodes) else {}),
        "outputs": [
            {"name": name, "node": wire.node, "tensor": wire.tensor}
            for name, wire in graph.outputs.items()
        ],
        "nodes": [_node(graph, node, steps.get(node.name)) for node in graph.nodes],
    }


def _node(graph: Graph, node: Node, step: GeneratedModel | None) -> dict[str, Any]:
    read = _read_of(graph, node.name)
    defaults = node.policy.on_error or {}
    outputs = [graph.spec(Wire(node.name, spec.name)) for spec in node.gives if spec.name in read]
    entry: dict[str, Any] = {
        "name": node.name,
        **_callee(node, step),
        "inputs": [_input(graph, node, spec) for spec in node.takes if spec.name in node.inputs],
        "outputs": [
            {**_tensor(s), **({"default": defaults[s.name]} if s.name in defaults else {})}
            for s in outputs
        ],
        **_policy(node.policy),
    }
    if not isinstance(node.runs, Merge):
        entry["max_in_flight"] = node.policy.max_in_flight or in_flight(graph)
    return entry


def _callee(node: Node, step: GeneratedModel | None) -> dict[str, Any]:
    if isinstance(node.runs, Merge):
        return {"branches": list(node.runs.branches)}
    covers = {"covers": list(node.covers)} if len(node.covers) > 1 else {}
    if isinstance(node.runs, ModelCall):
        return {"model": node.runs.model, "max_batch": node.runs.max_batch, **covers}
    assert step is not None
    return {"model": step.name, "max_batch": step.signature.max_batch, **covers}


def in_flight(graph: Graph) -> int:
    """Calls of one node that may be under way, where it does not say so itself."""
    calls = sum(not isinstance(node.runs, Merge) for node in graph.nodes)
    return max(LEAST_IN_FLIGHT, min(MOST_IN_FLIGHT, CALLS_AT_ONCE // max(1, calls)))


def _input(graph: Graph, node: Node, spec: TensorSpec) -> dict[str, Any]:
    wire = node.inputs[spec.name]
    entry: dict[str, Any] = {"name": spec.name, "node": wire.node, "tensor": wire.tensor}
    if spec.optional and wire != node.policy.foreach:
        entry["optional"] = True
    if spec == ROWS:
        entry["rows"] = True
    if node.policy.foreach is not None and graph.spec(wire).type.items:
        entry["each"] = True
    return entry


def _policy(policy: Policy) -> dict[str, Any]:
    """Keys of what a node declares; defaults are left out."""
    found: dict[str, Any] = {
        "timeout_ms": policy.timeout_ms,
        "retries": policy.retries or None,
        "on_error": True if policy.on_error is not None else None,
        "required": None if policy.required else False,
        "hedge_ms": policy.hedge_ms,
        "cache_s": policy.cache,
        "when": policy.when.tree if policy.when else None,
        "foreach": True if policy.foreach else None,
        "after": list(policy.after) or None,
    }
    if policy.quorum:
        found["quorum"] = {"need": policy.quorum.need, "of": list(policy.quorum.of)}
    return {key: value for key, value in found.items() if value is not None}


def _read_of(graph: Graph, name: str) -> set[str]:
    """Outputs of a node that something reads: only these are asked for."""
    read = {wire.tensor for wire in _wires(graph) if wire.node == name}
    for node in graph.nodes:
        if isinstance(node.runs, Merge) and name in node.runs.branches:
            read |= _read_of(graph, node.name)
    return read


def _wires(graph: Graph) -> Iterator[Wire]:
    yield from graph.outputs.values()
    for node in graph.nodes:
        yield from node.inputs.values()
        yield from node.policy.when.wires if node.policy.when else ()
        if node.policy.foreach:
            yield node.policy.foreach


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    entry = {"name": spec.name, "dtype": str(spec.type.dtype), "dims": list(spec.type.dims)}
    return {**entry, "items": True} if spec.type.items else entry
