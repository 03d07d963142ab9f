"""Options of ready-made steps: which tensors come of them, and which do not go together."""

from __future__ import annotations

import pytest
from pipelines import MODELS, checked, lines, source

from mmctl.pipeline import Asset, check_pipeline
from mmctl.pipeline.graph import Node, StepCall

ASSETS = {
    "tokenizer.json": Asset("tokenizer.json", b"{}"),
    "labels.txt": Asset("labels.txt", b"sfw\nnsfw\n"),
    "far.txt": Asset("far.txt", package="package:some_model/labels.txt", sha256="ab"),
}


def node(step: str, inputs: str, fed: str) -> Node:
    """The node of a pipeline that is this one step, all of whose outputs are shown."""
    text = f"""
    pipeline: demo
    inputs: {{{fed}}}
    nodes:
      made: {{step: {{{step}}}, inputs: {{{inputs}}}}}
    outputs: {{out: made.any}}
    """
    pipeline = source(text, assets=ASSETS)
    first = check_pipeline(pipeline, MODELS)
    [unknown] = first.findings
    assert unknown.hint is not None, unknown.text()
    name = unknown.hint.split("`")[1]
    graph = check_pipeline(source(text.replace("made.any", f"made.{name}"), assets=ASSETS), MODELS)
    assert graph.graph is not None, lines(graph)
    return graph.graph.nodes[0]


@pytest.mark.parametrize(
    ("step", "inputs", "fed", "gives"),
    [
        pytest.param("use: tokenize, tokenizer: tokenizer.json", "text: t", "t: string",
                     ["input_ids: int64[-1]", "attention_mask: int64[-1]"], id="tokenize"),
        pytest.param("use: tokenize, tokenizer: tokenizer.json, types: true, offsets: true",
                     "text: t", "t: string",
                     ["input_ids: int64[-1]", "attention_mask: int64[-1]",
                      "token_type_ids: int64[-1]", "offsets: int32[-1,2]"],
                     id="tokenize with all outputs"),
        pytest.param("use: image, size: 224", "image: i", "i: bytes", ["pixels: fp32[3,224,224]"],
                     id="image"),
        pytest.param("use: image, size: [200, 100], layout: nhwc", "image: i", "i: bytes",
                     ["pixels: fp32[200,100,3]"], id="image of height and width"),
        pytest.param("use: image, resize: 256, crop: 224", "image: i", "i: bytes",
                     ["pixels: fp32[3,224,224]"], id="image cut out of the shorter side"),
        pytest.param("use: image, resize: [30, 40]", "image: i", "i: bytes",
                     ["pixels: fp32[3,30,40]"], id="image that is only resized"),
        pytest.param("use: labels, labels: [a, b, c]", "scores: s", 's: "fp32[3]"',
                     ["label: string", "score: fp32"], id="labels"),
        pytest.param("use: labels, file: labels.txt, softmax: true", "scores: s", 's: "fp16[2]"',
                     ["label: string", "score: fp32"], id="labels of a file, scores in fp16"),
        pytest.param("use: labels, file: far.txt", "scores: s", 's: "fp32[9]"',
                     ["label: string", "score: fp32"], id="labels of a package"),
        pytest.param("use: threshold, at: 0.5", "score: s", "s: fp32", ["passed: bool"],
                     id="threshold"),
        pytest.param("use: threshold, at: [0.2, 0.8], labels: [a, b, c], index: 1", "score: s",
                     's: "fp32[2]"', ["passed: bool", "label: string"], id="bands"),
        pytest.param("use: join", "a: a, b: b", "a: string, b: bytes", ["joined: string"],
                     id="join of strings"),
        pytest.param("use: join", "a: a, b: b", 'a: "fp32[3]", b: fp32', ["joined: fp32[4]"],
                     id="join of numbers"),
        pytest.param("use: join", "a: a, b: b", 'a: "fp32[2,3]", b: "fp32[2,-1]"',
                     ["joined: fp32[2,-1]"], id="join on the last axis"),
    ],
)  # fmt: skip
def test_tensors_of_a_ready_made_step(step: str, inputs: str, fed: str, gives: list[str]) -> None:
    assert [str(spec) for spec in node(step, inputs, fed).gives] == gives


def test_files_are_named_by_their_path_beside_the_runner() -> None:
    call = node("use: labels, file: far.txt", "scores: s", 's: "fp32[9]"').runs
    assert isinstance(call, StepCall)
    assert call.options is not None
    assert call.options["file"] == "assets/far.txt"
    assert call.assets == {"assets/far.txt": ASSETS["far.txt"]}


def test_a_file_of_a_package_may_be_named_directly() -> None:
    step = 'use: tokenize, tokenizer: "package:some_model/deep/tokenizer.json"'
    call = node(step, "text: t", "t: string").runs
    assert isinstance(call, StepCall)
    assert call.assets["assets/tokenizer.json"].package == "package:some_model/deep/tokenizer.json"


def test_each_request_is_tokenized_for_itself_so_that_it_gets_its_own_length() -> None:
    call = node("use: tokenize, tokenizer: tokenizer.json", "text: t", "t: string").runs
    assert isinstance(call, StepCall)
    assert not call.join


def test_a_scale_may_be_a_fraction() -> None:
    call = node("use: image, size: 8, scale: 1/255, std: 0.5", "image: i", "i: bytes").runs
    assert isinstance(call, StepCall)
    assert call.options is not None
    assert call.options["scale"] == pytest.approx(1 / 255)
    assert call.options["std"] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("step", "fed", "expected"),
    [
        pytest.param("use: image", "image: i", "say how large the pixels are", id="no size"),
        pytest.param("use: image, resize: 256", "image: i", "say how large the pixels are",
                     id="one side is not a size"),
        pytest.param("use: image, size: 8, crop: 4", "image: i", "`size` stands alone",
                     id="two ways to a size"),
        pytest.param("use: image, resize: 200, crop: 224", "image: i", "`crop` is larger",
                     id="crop of more than there is"),
        pytest.param("use: image, resize: [300, 200], crop: 224", "image: i", "`crop` is larger",
                     id="crop of more width than there is"),
        pytest.param("use: image, size: 8, std: 0", "image: i", "`std` divides",
                     id="division by 0"),
        pytest.param("use: image, size: 8, scale: 1/0", "image: i", "write a number, or a fraction",
                     id="not a number"),
        pytest.param("use: image, size: 8, mean: nan", "image: i", "finite number", id="nan"),
        pytest.param("use: image, size: 8, scale: 1e400", "image: i", "finite number",
                     id="more than a float holds"),
        pytest.param(f"use: image, size: 8, scale: {10**400}/3", "image: i",
                     "write a number, or a fraction", id="a fraction beyond all floats"),
        pytest.param("use: threshold, at: inf", "score: n", "finite number", id="no threshold"),
        pytest.param("use: image, size: 8", "image: n", "`made.image` takes bytes, but `n` is fp32",
                     id="an image is bytes"),
        pytest.param("use: labels", "scores: v", "give the labels once", id="no labels"),
        pytest.param("use: labels, labels: [a], file: labels.txt", "scores: v",
                     "give the labels once", id="labels twice"),
        pytest.param("use: labels, labels: [a, b, c]", "scores: v",
                     "`made.scores` takes fp32[3], but `v` is fp32[2]", id="too many labels"),
        pytest.param("use: labels, file: label.txt", "scores: v", "there is no such file",
                     id="no such file"),
        pytest.param("use: threshold, at: [0.8, 0.2]", "score: n", "`at` rises",
                     id="falling bands"),
        pytest.param("use: threshold, at: 0.8, labels: [a]", "score: n",
                     "1 thresholds have 2 bands to label", id="bands without a label"),
        pytest.param("use: threshold, at: 0.8", "score: v", "`index` says which of its values",
                     id="several scores"),
        pytest.param("use: join", "a: n", "it takes two or more inputs", id="join of one"),
        pytest.param("use: join", "a: n, b: t", "its inputs differ in type: fp32, string",
                     id="join of unlike types"),
        pytest.param("use: join", "a: v, b: m", "its inputs differ before the last axis",
                     id="join of unlike shapes"),
        pytest.param("use: tokenize, tokenizer: tokenizer.json, length: 3", "text: t",
                     "unknown key `length`", id="unknown option"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_findings(step: str, fed: str, expected: str) -> None:
    text = f"""
    pipeline: demo
    inputs: {{t: string, i: bytes, n: fp32, v: "fp32[2]", m: "fp32[3,2]"}}
    nodes:
      made: {{step: {{{step}}}, inputs: {{{fed}}}}}
    outputs: {{out: made.any}}
    """
    result = check_pipeline(source(text, assets=ASSETS), MODELS)
    assert any(expected in f.message for f in result.findings if f.line == 4), lines(result)


def test_a_ready_made_step_has_its_own_outputs_and_works_on_batches() -> None:
    text = """
    pipeline: demo
    inputs: {i: bytes}
    nodes:
      made: {step: {use: image, size: 8}, inputs: {image: i}, outputs: {x: fp32}, batch: false}
    outputs: {out: made.pixels}
    """
    messages = [finding.message for finding in checked(text).findings]
    assert messages == [
        "the outputs of `image` are its own: leave `outputs` out",
        "a ready-made step works on whole batches: leave `batch` out",
    ]


@pytest.mark.parametrize("step", ["[a]", "{used: image}"])
def test_a_step_is_a_name_or_a_use(step: str) -> None:
    text = f"""
    pipeline: demo
    inputs: {{i: bytes}}
    nodes:
      made: {{step: {step}, inputs: {{image: i}}}}
    outputs: {{out: made.pixels}}
    """
    assert [finding.code for finding in checked(text).findings] == ["Y125"]
