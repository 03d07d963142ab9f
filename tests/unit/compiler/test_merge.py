"""Which models `fuse:` makes one, which it cannot, and where the wires lead then."""

from __future__ import annotations

import pytest
from pipelines import MODELS, graph_of, signature, source

from mmctl.compiler import compile_pipeline
from mmctl.compiler.merge import merge_models
from mmctl.compiler.merged import OnnxModel, merged_models
from mmctl.errors import InvalidFiles
from mmctl.pipeline.graph import Graph, MergedModels, Wire
from mmctl.triton.options import ServingOptions
from mmctl.triton.repository import CONFIG

SIGNATURES = {
    **MODELS,
    "any_head": signature({"embedding": "fp32[-1]"}, {"probs": "fp32[2]"}),
    "cpu_head": MODELS["head"],
    "python_head": MODELS["head"],
    "pair": signature({"a": "fp32", "b": "fp32"}, {"y": "fp32"}),
    "vector": signature({"x": "fp32[4]"}, {"y": "fp32[4]"}, max_batch=4),
}


def served(tolerance: float = 1e-5, **options: object) -> OnnxModel:
    return OnnxModel(ServingOptions.model_validate(options), tolerance)


ONNX = {
    "encoder": served(batching={"max_batch": 16, "max_delay_ms": 2}),
    "head": served(batching={"max_batch": 8, "max_delay_ms": 5, "queue_timeout_ms": 100}),
    "any_head": served(),
    "cpu_head": served(instances={"cpu": 2}),
    "double": served(),
    "lac": served(),
    "pair": served(1e-3),
    "vector": served(),
}

TOKENS = """
pipeline: demo
inputs: {ids: "int64[-1]", mask: "int64[-1]"}
nodes:
  encode: {model: encoder, inputs: {input_ids: ids, attention_mask: mask}}
"""
HEAD = "  head: {model: head, inputs: {embedding: encode.embedding}}\n"
STEPS = "def shift(x):\n    return {'x': x}\n"
DOUBLES = """
pipeline: demo
inputs: {x: fp32}
nodes:
  a: {model: double, inputs: {x: x}}
  b: {model: double, inputs: {x: a.y}}
"""


def graph(text: str) -> Graph:
    return graph_of(source(text, steps=STEPS), SIGNATURES)


def merged(text: str) -> Graph:
    return merge_models(graph(text), ONNX)


def groups(text: str) -> list[tuple[str, ...]]:
    """Members of each merged model."""
    return [node.covers for node in merged(text).nodes if isinstance(node.runs, MergedModels)]


def call_of(text: str, node: str) -> MergedModels:
    call = merged(text).node(node).runs
    assert isinstance(call, MergedModels)
    return call


PAIR = f"{TOKENS}{HEAD}outputs: {{probs: head.probs}}\nfuse: [encode, head]\n"


def test_the_models_that_fuse_names_are_one_node_named_after_the_last() -> None:
    [node] = merged(PAIR).nodes
    assert (node.name, node.covers) == ("head", ("encode", "head"))
    assert [str(spec) for spec in node.takes] == [
        "input_ids: int64[-1]",
        "attention_mask: int64[-1]",
    ]
    assert node.inputs == {"input_ids": Wire("", "ids"), "attention_mask": Wire("", "mask")}
    assert [str(spec) for spec in node.gives] == ["probs: fp32[2]"], "only what is read"


def test_its_recipe_says_what_feeds_what() -> None:
    recipe = call_of(PAIR, "head").recipe
    encode, head = recipe.members
    assert (encode.model, head.model) == ("encoder", "head")
    assert encode.inputs == {
        "input_ids": ("", "input_ids"),
        "attention_mask": ("", "attention_mask"),
    }
    assert head.inputs == {"embedding": ("encode", "embedding")}
    assert recipe.outputs == {"probs": ("head", "probs")}


def test_it_is_a_generated_onnx_model_that_the_pipeline_calls() -> None:
    pipeline = source(PAIR)
    compiled = compile_pipeline(graph_of(pipeline, SIGNATURES), pipeline, onnx=ONNX)
    model, own = compiled.models
    config = model.configs[CONFIG]
    assert (model.name, config.platform) == ("demo__head", "onnxruntime_onnx")
    assert (model.calls, own.calls) == ((), ("demo__head",))
    assert own.configs[CONFIG].steps[0].outputs == {"probs": "probs"}


def test_a_runner_calls_it_too() -> None:
    text = PAIR.replace(
        "outputs:", "  d: {model: double, inputs: {x: head.score}, on_error: {y: 0}}\noutputs:"
    )
    pipeline = source(text.replace("head.probs}", "head.probs, y: d.y}"))
    compiled = compile_pipeline(graph_of(pipeline, SIGNATURES), pipeline, onnx=ONNX)
    assert compiled.form == "bls"
    assert [model.name for model in compiled.models] == ["demo__head", "demo"]
    assert compiled.models[-1].calls == ("demo__head", "double")


def test_it_takes_the_least_batch_and_waits_as_the_most_patient_member_does() -> None:
    call = call_of(PAIR, "head")
    assert call.max_batch == call.options.batching.max_batch == 8
    assert call.options.batching.max_delay_ms == 5
    assert call.options.batching.queue_timeout_ms == 100


def test_its_gate_is_as_strict_as_its_members_are() -> None:
    text = f"{DOUBLES}  c: {{model: pair, inputs: {{a: b.y, b: x}}}}\noutputs: {{y: c.y}}\n"
    assert call_of(f"{text}fuse: [b, c]\n", "c").recipe.tolerance == 1e-3
    assert call_of(f"{text}fuse: [a, b]\n", "b").recipe.tolerance == 1e-5


def test_a_tensor_that_others_read_is_an_output_under_its_members_name() -> None:
    text = (
        f"{TOKENS}{HEAD}"
        "  other: {model: vector, inputs: {x: encode.embedding}}\n"
        "outputs: {probs: head.probs, embedding: encode.embedding, y: other.y}\n"
        "fuse: [encode, head]\n"
    )
    result = merged(text)
    assert [spec.name for spec in result.node("head").gives] == ["encode__embedding", "probs"]
    assert result.node("other").inputs == {"x": Wire("head", "encode__embedding")}
    assert result.outputs["embedding"] == Wire("head", "encode__embedding")


def test_one_tensor_is_one_input_and_equal_names_are_told_apart() -> None:
    text = (
        f"{DOUBLES}  c: {{model: pair, inputs: {{a: b.y, b: x}}}}\n"
        "  d: {model: double, inputs: {x: x}}\n"
        "  e: {model: pair, inputs: {a: c.y, b: d.y}}\n"
        "outputs: {y: e.y}\n"
        "fuse: [b, c, e]\n"
    )
    node = merged(text).node("e")
    assert node.inputs == {"x": Wire("a", "y"), "b": Wire("", "x"), "e__b": Wire("d", "y")}
    shared = f"{DOUBLES}  c: {{model: pair, inputs: {{a: a.y, b: b.y}}}}\noutputs: {{y: c.y}}\n"
    call = call_of(f"{shared}fuse: [b, c]\n", "c")
    assert call.recipe.inputs == {"x": (("b", "x"), ("c", "a"))}


def test_the_models_key_moves_with_the_wires_and_not_with_the_settings() -> None:
    [model] = merged_models(merged(PAIR), "pipeline.yaml")
    served_otherwise = {**ONNX, "encoder": served(1e-4, batching={"max_delay_ms": 50})}
    [other] = merged_models(merge_models(graph(PAIR), served_otherwise), "pipeline.yaml")
    assert model.configs != other.configs
    assert model.own_key == other.own_key
    text = f"{DOUBLES}outputs: {{y: b.y}}\nfuse: [a, b]\n"
    shown = f"{DOUBLES}outputs: {{y: b.y, z: a.y}}\nfuse: [a, b]\n"
    keys = [merged_models(merged(t), "")[0].own_key for t in (text, shown)]
    assert keys[0] != keys[1]


FUSED_AB = "outputs: {y: b.y}\nfuse: [a, b]\n"
IMPOSSIBLE = {
    "a step among them": (
        f"{TOKENS}  shift: {{step: shift, inputs: {{x: encode.embedding}}, outputs: {{x: fp32}}}}\n"
        "outputs: {x: shift.x}\nfuse: [encode, shift]\n",
        "`shift` cannot be merged: it is a Python step, and another node that `fuse` names is a "
        "model",
    ),
    "a policy": (
        DOUBLES.replace("x: a.y}", "x: a.y}, timeout_ms: 50") + FUSED_AB,
        "`b` cannot be merged: it has `timeout_ms`",
    ),
    "named by a policy": (
        f"{DOUBLES}  c: {{model: double, inputs: {{x: x}}, after: [a]}}\n"
        "outputs: {y: b.y, z: c.y}\nfuse: [a, b]\n",
        "`a` cannot be merged: a policy of another node names it",
    ),
    "not exported by mmctl": (
        f"{TOKENS}  head: {{model: python_head, inputs: {{embedding: encode.embedding}}}}\n"
        "outputs: {probs: head.probs}\nfuse: [encode, head]\n",
        "`head` cannot be merged: `python_head` is no ONNX model that mmctl exported",
    ),
    "no batch axis": (
        'pipeline: demo\ninputs: {x: "int64[-1,-1]"}\nnodes:\n'
        "  a: {model: lac, inputs: {x: x}}\n  b: {model: lac, inputs: {x: a.tags}}\n"
        "outputs: {y: b.tags}\nfuse: [a, b]\n",
        "`a` cannot be merged: `lac` takes no batch",
    ),
    "other instances": (
        f"{TOKENS}  head: {{model: cpu_head, inputs: {{embedding: encode.embedding}}}}\n"
        "outputs: {probs: head.probs}\nfuse: [encode, head]\n",
        "`encode` and `head` cannot be merged: they differ in `instances`",
    ),
    "a tensor of another shape": (
        f"{TOKENS}  head: {{model: any_head, inputs: {{embedding: encode.embedding}}}}\n"
        "outputs: {probs: head.probs}\nfuse: [encode, head]\n",
        "`encode` and `head` cannot be merged: `encode.embedding` is fp32[4], and "
        "`head.embedding` is fp32[-1]",
    ),
    "no wire between them": (
        "pipeline: demo\ninputs: {x: fp32}\nnodes:\n"
        "  a: {model: double, inputs: {x: x}}\n  b: {model: double, inputs: {x: x}}\n"
        "outputs: {y: b.y, z: a.y}\nfuse: [a, b]\n",
        "`a` and `b` cannot be merged: no wire joins them",
    ),
    "a node between them": (
        f"{DOUBLES}  c: {{model: pair, inputs: {{a: a.y, b: b.y}}}}\n"
        "outputs: {y: c.y}\nfuse: [a, c]\n",
        "`a` and `c` cannot be merged: `b` stands between them",
    ),
    "a tensor is read that skipped rows would take along": (
        "pipeline: demo\ninputs: {x: fp32}\nnodes:\n"
        '  s: {model: double, inputs: {x: x}, when: "x > 0"}\n'
        "  a: {model: double, inputs: {x: x}}\n"
        "  b: {model: pair, inputs: {a: a.y, b: s.y}}\n"
        "  c: {step: shift, inputs: {'x?': b.y}, outputs: {x: fp32}}\n"
        "outputs: {y: c.x, z: a.y}\nfuse: [a, b]\n",
        "`a` and `b` cannot be merged: rows that `s` skips would change",
    ),
    "a tensor is read whose failures are absorbed": (
        f"{DOUBLES}  c: {{model: double, inputs: {{x: a.y}}, on_error: {{y: 0}}}}\n"
        "outputs: {y: b.y, z: c.y}\nfuse: [a, b]\n",
        "`a` and `b` cannot be merged: `c` would take other failures for its own",
    ),
}


@pytest.mark.parametrize(("text", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_one_model_is_told_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be merged") as caught:
        merged(text)
    assert str(caught.value) == message


def test_the_reason_is_a_finding_where_fuse_stands() -> None:
    pipeline = source(PAIR.replace("head, inputs", "cpu_head, inputs"))
    with pytest.raises(InvalidFiles) as caught:
        compile_pipeline(graph_of(pipeline, SIGNATURES), pipeline, onnx=ONNX)
    [finding] = caught.value.findings
    assert (finding.code, finding.line) == ("Y130", 7)
    assert "differ in `instances`" in finding.message


AUTO = {
    "a chain": (f"{TOKENS}{HEAD}outputs: {{p: head.probs}}\n", [("encode", "head")]),
    "a chain of three": (
        f"{DOUBLES}  c: {{model: double, inputs: {{x: b.y}}}}\noutputs: {{y: c.y}}\n",
        [("a", "b", "c")],
    ),
    "with a tensor from before the chain": (
        f"{DOUBLES}  c: {{model: pair, inputs: {{a: b.y, b: x}}}}\noutputs: {{y: c.y}}\n",
        [("a", "b", "c")],
    ),
    "not where a second node reads": (
        f"{TOKENS}{HEAD}  other: {{model: head, inputs: {{embedding: encode.embedding}}}}\n"
        "outputs: {p: head.probs, q: other.probs}\n",
        [],
    ),
    "not where the tensor is an output": (
        f"{DOUBLES}outputs: {{y: b.y, z: a.y}}\n",
        [],
    ),
    "not where the second waits for more": (
        f"{DOUBLES}  s: {{model: foreign, inputs: {{input/0: x}}}}\n"
        "  c: {model: pair, inputs: {a: b.y, b: s.4195}}\noutputs: {y: c.y}\n",
        [("a", "b")],
    ),
    "not with a policy": (
        DOUBLES.replace("x: a.y}", "x: a.y}, timeout_ms: 50") + "outputs: {y: b.y}\n",
        [],
    ),
    "steps are not its matter": (
        "pipeline: demo\ninputs: {x: fp32}\nnodes:\n"
        "  a: {step: shift, inputs: {x: x}, outputs: {x: fp32}}\n"
        "  b: {step: shift, inputs: {x: a.x}, outputs: {x: fp32}}\noutputs: {y: b.x}\n",
        [],
    ),
}


@pytest.mark.parametrize(("text", "wanted"), AUTO.values(), ids=AUTO)
def test_auto_merges_chains_and_changes_no_waiting(text: str, wanted: list[object]) -> None:
    assert groups(f"{text}fuse: auto\n") == wanted


def test_nothing_is_merged_unless_fuse_says_so() -> None:
    text = PAIR.replace("fuse: [encode, head]\n", "")
    assert merged(text) == graph(text)


def test_a_list_of_steps_alone_is_not_about_models() -> None:
    text = f"{AUTO['steps are not its matter'][0]}fuse: [a, b]\n"
    assert merged(text) == graph(text)
