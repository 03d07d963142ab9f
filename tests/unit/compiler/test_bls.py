"""The bls form: what plan.json and the step models say where the graph alone does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pipelines import graph_of, signature, source

from mmctl.compiler import Compiled, compile_pipeline
from mmctl.errors import InvalidFiles
from mmctl.tensors import DType, Signature
from mmctl.triton.repository import CONFIG, GeneratedModel

MODELS = {
    "double": signature({"x": "fp32"}, {"y": "fp32"}),
    "half": signature({"x": "bf16"}, {"y": "fp32"}),
    "brief": signature({"x": "fp32"}, {"y": "fp32", "z": "bf16"}),
}
STEPS = """
def tell(a, b): return {"y": a}
def cut(x): return {"parts": [[]]}
def each(part): return {"y": part}
def count(ys): return {"y": ys}
"""


def compiled(text: str, models: dict[str, Signature] = MODELS) -> Compiled:
    pipeline = source(text, steps=STEPS)
    return compile_pipeline(graph_of(pipeline, models), pipeline)


def model_of(found: Compiled, name: str) -> GeneratedModel:
    return next(model for model in found.models if model.name == name)


def entry(found: Compiled, name: str) -> Any:
    plan = found.models[-1].plans["plan.json"]
    return next(node for node in plan["nodes"] if node["name"] == name)


LAX = """
pipeline: demo
inputs: {x: fp32}
nodes:
  a: {model: double, inputs: {x: x}, required: false}
  b: {model: double, inputs: {x: x}, required: false}
  tell: {step: tell, inputs: {"a?": a.y, "b?": b.y}, outputs: {y: fp32}}
outputs: {y: tell.y}
"""
ROWS = {"name": "rows__", "dtype": "uint8", "dims": []}


def test_a_step_that_may_lack_every_input_is_told_how_many_rows_there_are() -> None:
    """Triton has no request without any input."""
    found = compiled(LAX)
    assert found.models[-1].plans["plan.json"]["rows"] == ROWS
    told = {"name": "rows__", "node": "", "tensor": "rows__", "rows": True}
    assert entry(found, "tell")["inputs"][-1] == told
    step = model_of(found, "demo__tell")
    assert [(t.name, t.optional) for t in step.configs[CONFIG].inputs] == [
        ("a", True), ("b", True), ("rows__", False),
    ]  # fmt: skip
    plan = json.loads(step.files["step.json"])
    assert [t["name"] for t in plan["inputs"]] == ["a", "b", "rows__"]
    assert [t["name"] for t in plan["steps"][0]["inputs"]] == ["a", "b"]


def test_a_step_with_an_input_that_is_always_there_is_told_nothing_more() -> None:
    found = compiled(LAX.replace('"b?": b.y', "b: x").replace("  b: {", "  #"))
    assert "rows" not in found.models[-1].plans["plan.json"]
    assert [item["name"] for item in entry(found, "tell")["inputs"]] == ["a", "b"]


def test_no_node_does_without_the_list_that_it_runs_over() -> None:
    found = compiled("""
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      cut: {step: cut, inputs: {x: x}, outputs: {parts: "fp32[*]"}, when: x > 1}
      each: {step: each, foreach: cut.parts, inputs: {"part?": cut.parts}, outputs: {y: fp32}}
      count: {step: count, inputs: {"ys?": each.y}, outputs: {y: fp32}}
    outputs: {y: count.y}
    """)
    assert entry(found, "each")["inputs"] == [
        {"name": "part", "node": "cut", "tensor": "parts", "each": True}
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "inputs: {x: bf16}\nnodes:\n  a: {model: half, inputs: {x: x}, timeout_ms: 9}\n"
            "outputs: {y: a.y}",
            "2:13: Y117 the input `x` is bf16, which the bls form cannot carry: numpy has none\n"
            "  hint: take it as fp32",
            id="an input",
        ),
        pytest.param(
            "inputs: {x: fp32}\nnodes:\n  a: {model: brief, inputs: {x: x}, timeout_ms: 9}\n"
            "outputs: {y: a.y, z: a.z}",
            "4:6: Y117 `a.z` is bf16, which the bls form cannot carry: numpy has none\n"
            "  hint: let the model give it as fp32",
            id="an output",
        ),
    ],
)
def test_bf16_has_no_way_through_python(text: str, expected: str) -> None:
    with pytest.raises(InvalidFiles) as error:
        compiled(f"pipeline: demo\n{text}\n")
    assert str(error.value) == f"ensembles/demo/pipeline.yaml:{expected}"


def test_a_bf16_output_that_nobody_reads_harms_nobody() -> None:
    assert DType.BF16 in [spec.type.dtype for spec in MODELS["brief"].outputs]
    found = compiled("""
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: brief, inputs: {x: x}, timeout_ms: 9}
    outputs: {y: a.y}
    """)
    assert [output["name"] for output in entry(found, "a")["outputs"]] == ["y"]


KEPT = """
pipeline: demo
inputs: {x: fp32}
nodes:
  a: {model: double, inputs: {x: x}, cache: {ttl_s: 60}}
  b: {model: double, inputs: {x: a.y}}
outputs: {y: b.y}
"""


@pytest.mark.parametrize(
    ("text", "room"),
    [
        pytest.param(KEPT, 64 * 1024**2, id="not said"),
        pytest.param(f"cache_bytes: 1MiB{KEPT}", 1024**2, id="said"),
    ],
)
def test_the_plan_says_how_long_answers_of_a_node_are_kept_and_how_many(
    text: str, room: int
) -> None:
    found = compiled(text)
    assert found.models[-1].plans["plan.json"]["cache_bytes"] == room
    assert [entry(found, name).get("cache_s") for name in "ab"] == [60, None]


def test_a_plan_without_kept_answers_says_nothing_of_them() -> None:
    plan = compiled(KEPT.replace("cache", "timeout_ms").replace("{ttl_s: 60}", "60")).models[-1]
    assert "cache" not in json.dumps(plan.plans["plan.json"])


def test_a_new_version_of_a_callee_or_other_content_moves_what_answers_are_found_by() -> None:
    model = compiled(KEPT).models[-1]

    def known(version: int, digest: str) -> Any:
        return json.loads(model.pinned({"double": version}, {"double": digest}).files["plan.json"])

    plans = [known(1, "d"), known(2, "d"), known(1, "e")]
    assert [(plan["pins"], plan["digests"]) for plan in plans] == [
        ({"double": 1}, {"double": "d"}),
        ({"double": 2}, {"double": "d"}),
        ({"double": 1}, {"double": "e"}),
    ]
