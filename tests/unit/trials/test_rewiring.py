"""Pipelines in which stubs stand in for nodes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pipelines import graph_of, source

from mmctl.compiler import compile_pipeline
from mmctl.pipeline.graph import Graph
from mmctl.tensors import TensorSpec, parse_type
from mmctl.trials.faults import Fault
from mmctl.trials.promises import promise_of
from mmctl.trials.rewiring import (
    Callee,
    callee_in_plan,
    config_with_stub,
    constants_for,
    plan_with_stub,
    reference_plan,
    step_of,
)
from mmctl.trials.stubs import row_of, stub_of
from mmctl.triton.repository import CONFIG

GUARDED = source(
    """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}, when: "x > 1", timeout_ms: 100}
      b: {model: double, inputs: {x: a.y}, on_error: {y: 5}, required: true}
      c: {model: double, inputs: {x: x}, required: false}
      d: {step: join, inputs: {"b?": b.y, "c?": c.y, x: x}, outputs: {y: fp32}}
    outputs: {y: d.y}
    """,
    steps="""
    def join(b, c, x):
        return {"y": x}
    """,
)


def plan_of(pipeline: Any) -> tuple[Graph, dict[str, Any]]:
    graph = graph_of(pipeline)
    model = compile_pipeline(graph, pipeline).models[-1].pinned({"double": 3}, {})
    return graph, json.loads(model.files["plan.json"])


def entry(plan: dict[str, Any], name: str) -> dict[str, Any]:
    return next(node for node in plan["nodes"] if node["name"] == name)


def test_a_stub_runs_one_node_and_all_else_stays() -> None:
    _, plan = plan_of(GUARDED)
    changed = plan_with_stub(plan, "a", "stub")
    assert callee_in_plan(plan, "a") == Callee("double", 3)
    assert callee_in_plan(changed, "a") == Callee("stub", 1)
    assert callee_in_plan(changed, "b") == Callee("double", 3)
    assert entry(changed, "a") == {**entry(plan, "a"), "model": "stub"}


def reference(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan before and after, for a failure of the node."""
    graph, plan = plan_of(GUARDED)
    promise = promise_of(graph, "bls", graph.node(name), Fault.RAISING)
    stubs = constants_for(graph, name, promise)
    return plan, reference_plan(plan, graph, name, promise, stubs)


def test_the_failing_node_gives_its_own_values_where_it_would_run() -> None:
    plan, changed = reference("b")
    node = entry(changed, "b")
    assert node["model"] == "demo__b__constant"
    assert node["inputs"] == entry(plan, "b")["inputs"]
    assert "on_error" not in node


def test_a_node_behind_it_gives_its_values_without_it() -> None:
    _, changed = reference("a")
    node = entry(changed, "b")
    assert node["model"] == "demo__b__constant"
    assert node["inputs"] == [{"name": "x", "node": "", "tensor": "x"}]
    assert entry(changed, "a")["model"] == "double"


def test_a_node_that_is_not_required_never_runs() -> None:
    _, changed = reference("c")
    assert entry(changed, "c")["when"] == ["==", ["value", 0], ["value", 1]]


def test_the_step_of_an_ensemble_is_found_although_another_runs_the_same_model() -> None:
    pipeline = source("""
    pipeline: demo
    form: ensemble
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
      b: {model: double, inputs: {x: a.y}}
    outputs: {once: a.y, twice: b.y}
    """)
    graph = graph_of(pipeline)
    config = compile_pipeline(graph, pipeline).models[-1].configs[CONFIG]
    assert dict(step_of(config, graph, graph.node("a")).outputs) == {"y": "a.y"}
    step = step_of(config, graph, graph.node("b"))
    assert dict(step.outputs) == {"y": "twice"}
    changed = config_with_stub(config, step, "stub")
    assert [s.model for s in changed.steps].count("stub") == 1
    assert [s.model for s in changed.steps].count("double") == 1


def test_a_stub_has_the_tensors_of_what_it_stands_for() -> None:
    pipeline = source("""
    pipeline: demo
    form: ensemble
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
    outputs: {y: a.y}
    """)
    config = compile_pipeline(graph_of(pipeline), pipeline).models[-1].configs[CONFIG]
    stub = stub_of("stub", config, 4)
    assert (stub.inputs, stub.outputs) == (config.inputs, config.outputs)
    assert (stub.original, stub.version, stub.max_batch) == ("demo", 4, 8)


def row(kind: str, value: Any) -> Any:
    return row_of(TensorSpec("y", parse_type(kind)), value)


def test_declared_values_fill_the_shape_of_a_row() -> None:
    assert row("fp32", -1.0).tolist() == [-1.0]
    assert row("fp32[2,-1]", 7.0).tolist() == [[7.0], [7.0]]
    assert row("int32[2]", [1, 2]).tolist() == [1, 2]
    assert row("fp32[-1,4]", []).shape == (0, 4)
    assert row("string", "no").tolist() == [b"no"]
    assert row("string[2]", ["a", "b"]).tolist() == [b"a", b"b"]
    assert row("bool", True).dtype == np.bool_


def test_a_declared_list_is_one_packed_value() -> None:
    assert row("fp32[*]", []).shape == (1,)
    assert row("fp32[*]", [7.0])[0] == (1).to_bytes(8, "little") + np.float32(7).tobytes()
