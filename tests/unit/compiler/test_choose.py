"""The form of a pipeline: the cheapest that keeps what it declares, and why."""

from __future__ import annotations

import pytest
from pipelines import graph_of, source

from mmctl.compiler import Compiled, compile_pipeline
from mmctl.errors import InvalidFiles
from mmctl.triton.releases import Release

TEXT = """
pipeline: demo
inputs: {e: "fp32[4]", text: string, tokens: "int64[-1,-1]"}
nodes:
  head:  {model: head, inputs: {embedding: e}}
  spell: {model: speller, inputs: {text: text}}
  tell:  {step: tell, inputs: {score: head.score, text: spell.text}, outputs: {told: string}}
outputs: {told: tell.told, probs: head.probs}
"""
STEPS = """
def tell(score, text): return {"told": text}
def more(told): return {"told": told}
def cut(text): return {"words": [[]]}
def glue(words): return {"told": words}
"""
HEAD, SPELL = "{model: head, inputs: {embedding: e}", "{model: speller, inputs: {text: text}"
TOKENS = ', tokens: "int64[-1,-1]"'


def compiled(text: str, release: Release | None = None) -> Compiled:
    pipeline = source(text.replace(TOKENS, "") if "lac" not in text else text, steps=STEPS)
    return compile_pipeline(graph_of(pipeline), pipeline, release)


def form_of(text: str) -> str:
    found = compiled(text)
    return f"{found.form} because {found.reason}"


def test_a_static_graph_is_an_ensemble() -> None:
    assert form_of(TEXT) == (
        "ensemble because it is a static graph: no policy, no condition, no fan-out"
    )


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        pytest.param("timeout_ms: 5", "`head.timeout_ms`", id="timeout"),
        pytest.param("retries: 1", "`head.retries`", id="retries"),
        pytest.param("on_error: {score: 0, probs: 0}", "`head.on_error`", id="default"),
        pytest.param("after: [spell]", "`head.after`", id="order"),
        pytest.param("max_in_flight: 3", "`head.max_in_flight`", id="calls at once"),
        pytest.param("cache: {ttl_s: 60}", "`head.cache`", id="answers that are kept"),
        pytest.param(
            "timeout_ms: 9, retries: 2, on_error: {score: 0, probs: 0}, after: [spell]",
            "`head.timeout_ms`, `head.retries`, `head.on_error` and 1 more",
            id="several",
        ),
    ],
)
def test_a_policy_makes_it_bls(declared: str, named: str) -> None:
    text = TEXT.replace(HEAD, f"{HEAD}, {declared}")
    assert form_of(text) == f"bls because of {named}"


@pytest.mark.parametrize("key", ["deadline_ms: 900", "max_pending: 4", "provenance: true"])
def test_a_promise_of_the_whole_pipeline_makes_it_bls(key: str) -> None:
    assert form_of(f"{key}{TEXT}") == f"bls because of `{key.partition(':')[0]}`"


def test_a_model_without_batch_axis_among_others_makes_it_bls() -> None:
    text = TEXT.replace("nodes:", "nodes:\n  lac: {model: lac, inputs: {x: tokens}}").replace(
        "\noutputs: {told", "\noutputs: {tags: lac.tags, told"
    )
    assert form_of(text) == "bls because of `lac`, which takes no batch"


def test_a_list_tensor_makes_it_bls() -> None:
    text = """
    pipeline: demo
    inputs: {text: string}
    nodes:
      cut: {step: cut, inputs: {text: text}, outputs: {words: "string[*]"}}
      each: {model: speller, foreach: cut.words, inputs: {text: cut.words}}
      glue: {step: glue, inputs: {words: each.text}, outputs: {told: string}}
    outputs: {told: glue.told}
    """
    assert form_of(text) == "bls because of the list tensor `cut.words`, `each.foreach`"


ONLY_STEPS = """
pipeline: demo
inputs: {text: string, score: fp32}
nodes:
  tell: {step: tell, inputs: {score: score, text: text}, outputs: {told: string}}
  more: {step: more, inputs: {told: tell.told}, outputs: {told: string}}
outputs: {told: more.told}
"""


def test_steps_alone_are_one_model() -> None:
    assert form_of(ONLY_STEPS) == "fused because its 2 nodes are Python steps"
    assert [model.name for model in compiled(ONLY_STEPS).models] == ["demo"]


@pytest.mark.parametrize("form", ["ensemble", "bls"])
def test_a_pinned_form_is_built_as_it_is_written(form: str) -> None:
    found = compiled(f"form: {form}{ONLY_STEPS}")
    assert (found.form, found.reason) == (form, f"`form: {form}` says so")
    assert [model.name for model in found.models] == ["demo__tell", "demo__more", "demo"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "form: ensemble" + TEXT.replace(HEAD, f"{HEAD}, timeout_ms: 5"),
            "1:7: Y117 `form: ensemble` cannot keep `head.timeout_ms`\n"
            "  hint: remove `form`, or `head.timeout_ms`",
            id="a policy in an ensemble",
        ),
        pytest.param(
            "form: fused" + TEXT,
            "1:7: Y117 `form: fused` makes one Python model, but `head` is a model of its own\n"
            "  hint: remove `form`; for two ONNX models that follow each other there is "
            "`fuse: [a, b]`",
            id="a model in a fused pipeline",
        ),
        pytest.param(
            "form: fused" + ONLY_STEPS.replace("outputs: {told: string}}\noutputs", "outputs: "
            "{told: string}, instances: {cpu: 2}}\noutputs"),
            "1:7: Y117 `form: fused` makes one Python model, which `tell`, `more` cannot be\n"
            "  hint: a step with `instances`, `batching` or `batch: false` stays a model of its "
            "own",
            id="a step with instances of its own",
        ),
    ],
)  # fmt: skip
def test_an_impossible_pin_says_what_forbids_it(text: str, expected: str) -> None:
    with pytest.raises(InvalidFiles) as error:
        compiled(text)
    assert str(error.value) == f"ensembles/demo/pipeline.yaml:{expected}"


def test_a_triton_before_24_06_gets_the_form_that_waits_and_a_warning() -> None:
    text = f"provenance: true{TEXT}"
    old = compiled(text, Release(24, 5))
    assert old.models[-1].plans["plan.json"]["answers_late"] is False
    assert [finding.code for finding in old.warnings] == ["Y135"]
    assert compiled(text).models[-1].plans["plan.json"]["answers_late"] is True
    assert compiled(text).warnings == ()
