"""Graph -> ensemble: names of tensors, copies where Triton needs them, what moves a version."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pipelines import MODELS, graph_of, source

from mmctl.compiler import Compiled, compile_pipeline
from mmctl.errors import InputError
from mmctl.tensors import DType, Signature, TensorSpec, TensorType
from mmctl.triton.config import EnsembleStep, ModelConfig
from mmctl.triton.repository import GeneratedModel

STEPS = """
def count(text):
    return {"hits": text, "found": text}

def judge(score, hits):
    return {"label": score}
"""


def compiled(nodes: str, outputs: str, inputs: str = "x: fp32, text: string") -> Compiled:
    indented = "".join(f"  {line.strip()}\n" for line in nodes.strip().splitlines())
    head = f"pipeline: demo\nform: ensemble\ninputs: {{{inputs}}}\n"
    text = f"{head}nodes:\n{indented}outputs: {{{outputs}}}\n"
    pipeline = source(text, steps=STEPS)
    return compile_pipeline(graph_of(pipeline), pipeline)


def ensemble(result: Compiled) -> ModelConfig:
    return result.models[-1].configs["config.pbtxt"]


def step_of(result: Compiled, model: str) -> EnsembleStep:
    return next(step for step in ensemble(result).steps if step.model == model)


def generated(result: Compiled, name: str) -> GeneratedModel:
    return next(model for model in result.models if model.name == name)


def test_inner_tensors_are_named_by_their_node_and_outputs_by_themselves() -> None:
    result = compiled(
        """
        one: {model: double, inputs: {x: x}}
        two: {model: double, inputs: {x: one.y}}
        """,
        "out: two.y",
        inputs="x: fp32",
    )
    assert [(dict(s.inputs), dict(s.outputs)) for s in ensemble(result).steps] == [
        ({"x": "x"}, {"y": "one.y"}),
        ({"x": "one.y"}, {"y": "out"}),
    ]
    assert ensemble(result).platform == "ensemble"
    assert ensemble(result).max_batch_size == 8
    assert {step.version for step in ensemble(result).steps} == {-1}
    assert [model.name for model in result.models] == ["demo"]
    assert result.models[-1].calls == ("double",)
    assert result.signature == Signature(
        (TensorSpec("x", TensorType(DType.FP32)),),
        (TensorSpec("out", TensorType(DType.FP32)),),
        8,
    )


def test_outputs_that_nobody_needs_are_left_out() -> None:
    result = compiled("h: {model: head, inputs: {embedding: e}}", "p: h.probs", 'e: "fp32[4]"')
    assert dict(step_of(result, "head").outputs) == {"probs": "p"}


def test_an_output_of_a_model_that_a_node_reads_too_is_copied() -> None:
    result = compiled(
        """
        one: {model: double, inputs: {x: x}}
        two: {model: double, inputs: {x: one.y}}
        """,
        "first: one.y, second: two.y",
        inputs="x: fp32",
    )
    copy = step_of(result, "demo__one__copy")
    assert (dict(copy.inputs), dict(copy.outputs)) == ({"y": "one.y"}, {"first": "first"})
    assert dict(step_of(result, "double").outputs) == {"y": "one.y"}
    assert [model.name for model in result.models] == ["demo__one__copy", "demo"]
    assert result.models[-1].calls == ("double", "demo__one__copy")


def test_a_model_output_that_is_shown_twice_is_copied_for_both() -> None:
    result = compiled("one: {model: double, inputs: {x: x}}", "a: one.y, b: one.y", "x: fp32")
    copy = step_of(result, "demo__one__copy")
    assert dict(copy.outputs) == {"a": "a", "b": "b"}


def test_a_step_of_ones_own_gives_a_tensor_as_often_as_it_is_needed() -> None:
    result = compiled(
        """
        words: {step: count, inputs: {text: text}, outputs: {hits: int32, found: string}}
        last: {step: judge, inputs: {score: words.hits, hits: words.found}, outputs: {label: int32}}
        """,
        "label: last.label, hits: words.hits, a: words.found, b: words.found",
        inputs="text: string",
    )
    assert dict(step_of(result, "demo__words").outputs) == {
        "found": "words.found",
        "hits": "words.hits",
        "hits__hits": "hits",
        "found__a": "a",
        "found__b": "b",
    }
    words = generated(result, "demo__words")
    assert [spec.name for spec in words.signature.outputs] == [
        "hits", "found", "hits__hits", "found__a", "found__b",
    ]  # fmt: skip
    assert not [model for model in result.models if "copy" in model.name]


def test_a_tensor_that_two_nodes_read_needs_no_copy() -> None:
    result = compiled(
        """
        one: {model: double, inputs: {x: x}}
        a: {model: double, inputs: {x: one.y}}
        b: {model: double, inputs: {x: one.y}}
        """,
        "a: a.y, b: b.y",
        inputs="x: fp32",
    )
    assert [model.name for model in result.models] == ["demo"]


def test_text_is_copied_as_bytes() -> None:
    result = compiled("s: {model: speller, inputs: {text: t}}", "a: s.text, b: s.text", "t: string")
    copy = generated(result, "demo__s__copy")
    assert {spec.type.dtype for spec in copy.signature.outputs} == {DType.BYTES}
    assert {tensor.dtype.triton for tensor in ensemble(result).outputs} == {"TYPE_STRING"}


def test_independent_branches_stand_behind_a_copy_of_their_inputs() -> None:
    """Else a request for one output is never answered: see compiler/subsets.py."""
    result = compiled(
        """
        one: {model: double, inputs: {x: x}}
        two: {model: speller, inputs: {text: text}}
        """,
        "y: one.y, spelled: two.text",
    )
    first = ensemble(result).steps[0]
    assert first.model == "demo__copy__inputs"
    assert dict(first.inputs) == {"x": "x", "text": "text"}
    assert dict(step_of(result, "double").inputs) == {"x": "x__copy"}
    assert dict(step_of(result, "speller").inputs) == {"text": "text__copy"}


def test_branches_that_meet_need_no_copy_of_their_inputs() -> None:
    result = compiled(
        """
        one: {model: double, inputs: {x: x}}
        words: {step: count, inputs: {text: text}, outputs: {hits: int32, found: string}}
        last: {step: judge, inputs: {score: one.y, hits: words.hits}, outputs: {label: string}}
        """,
        "label: last.label",
    )
    assert [model.name for model in result.models] == ["demo__words", "demo__last", "demo"]


def test_the_step_that_reads_all_inputs_goes_first() -> None:
    result = compiled(
        """
        one: {model: double, inputs: {x: x}}
        both: {step: judge, inputs: {score: x, hits: text}, outputs: {label: string}}
        """,
        "y: one.y, label: both.label",
    )
    assert [step.model for step in ensemble(result).steps] == ["demo__both", "double"]


def test_a_pipeline_without_batch_axis_calls_its_models_without_one() -> None:
    models = {**MODELS, "plain": Signature(MODELS["double"].inputs, MODELS["double"].outputs, 0)}
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      one: {model: plain, inputs: {x: x}}
      two: {step: judge, inputs: {score: one.y, hits: x}, outputs: {label: string}}
    outputs: {label: two.label}
    """
    pipeline = source(text, steps=STEPS)
    result = compile_pipeline(graph_of(pipeline, models), pipeline)
    assert [model.signature.max_batch for model in result.models] == [0, 0]
    assert b'"batched": false' in result.models[0].files["step.json"]


def test_bf16_cannot_be_copied() -> None:
    y = TensorSpec("y", TensorType(DType.BF16))
    models = {"m": Signature(MODELS["double"].inputs, (y,), 8)}
    pipeline = source(
        "pipeline: demo\ninputs: {x: fp32}\nnodes: {m: {model: m, inputs: {x: x}}}\n"
        "outputs: {a: m.y, b: m.y}\n"
    )
    graph = graph_of(pipeline, models)
    with pytest.raises(InputError, match="`y` is bf16"):
        compile_pipeline(graph, pipeline)


WIRED = "one: {model: double, inputs: {x: x}}\ntwo: {model: double, inputs: {x: one.y}}"


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        pytest.param(WIRED, "other: two.y", id="another name of an output"),
        pytest.param(WIRED.replace("one.y", "x"), "out: two.y, first: one.y", id="another wire"),
    ],
)
def test_another_wiring_is_another_version(nodes: str, outputs: str) -> None:
    keys = {compiled(*args, inputs="x: fp32").models[-1].own_key for args in (
        (WIRED, "out: two.y"), (nodes, outputs)
    )}  # fmt: skip
    assert len(keys) == 2


def test_another_model_is_another_version() -> None:
    models = {**MODELS, "other": MODELS["double"]}
    keys = set()
    for model in ("double", "other"):
        pipeline = source(
            f"pipeline: demo\ninputs: {{x: fp32}}\nnodes: {{m: {{model: {model}, "
            "inputs: {x: x}}}\noutputs: {y: m.y}\n"
        )
        keys.add(compile_pipeline(graph_of(pipeline, models), pipeline).models[-1].own_key)
    assert len(keys) == 2


def test_a_smaller_batch_is_no_other_version() -> None:
    pipeline = source(
        "pipeline: demo\ninputs: {x: fp32}\nnodes: {one: {model: double, inputs: {x: x}}}\n"
        "outputs: {y: one.y}\n"
    )
    graph = graph_of(pipeline)
    full, lower = (
        compile_pipeline(g, pipeline).models[-1] for g in (graph, replace(graph, max_batch=2))
    )
    assert full.own_key == lower.own_key
    assert full.configs != lower.configs
