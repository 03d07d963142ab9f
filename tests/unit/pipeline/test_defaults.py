"""`on_error:` values have the type and the shape of the outputs that they stand for."""

from __future__ import annotations

import pytest
from pipelines import checked, graph_of, lines, source

from mmctl.pipeline.defaults import read_value
from mmctl.pipeline.graph import Json
from mmctl.tensors import parse_type

Y = "y: fp32"


def step(kind: str, value: str) -> str:
    """A pipeline with one step that gives `y`."""
    return f"""
    pipeline: demo
    inputs: {{x: fp32}}
    nodes:
      a:
        step: f
        inputs: {{x: x}}
        outputs: {{y: "{kind}"}}
        on_error: {value}
      b: {{step: g, inputs: {{y: a.y}}, outputs: {{z: string}}}}
    outputs: {{z: b.z}}
    """


STEPS = "def f(x):\n    return {'y': x}\n\ndef g(y):\n    return {'z': ['']}\n"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        pytest.param("fp32", "{y: -1}", -1.0, id="a number"),
        pytest.param("int8", "{y: -128}", -128, id="the least"),
        pytest.param("uint64", "{y: 18446744073709551615}", 2**64 - 1, id="the largest"),
        pytest.param("bool", "{y: true}", True, id="a flag"),
        pytest.param("string", "{y: true}", "true", id="text"),
        pytest.param("string", '{y: ""}', "", id="no text"),
        pytest.param("fp32[2]", "{y: 0}", 0.0, id="an element fills the shape"),
        pytest.param("fp32[2]", "{y: [0, 1]}", [0.0, 1.0], id="a row"),
        pytest.param("int32[-1]", "{y: []}", [], id="a row of none"),
        pytest.param("fp32[-1,2]", "{y: [[1, 2], [3, 4], [5, 6]]}",
                     [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], id="more axes"),
        pytest.param("fp32[-1,4]", "{y: []}", [], id="no rows of four"),
        pytest.param("uint8[*,2]", "{y: []}", [], id="a list of no items"),
        pytest.param("uint8[*,-1]", "{y: [[1], [1, 2], 3]}", [[1], [1, 2], 3],
                     id="items of several sizes"),
        pytest.param("uint8[*,2]", "{y: [0, [1, 2]]}", [0, [1, 2]], id="a list of two items"),
    ],
)  # fmt: skip
def test_a_value_is_read_by_the_type_of_its_output(kind: str, value: str, expected: Json) -> None:
    policy = graph_of(source(step(kind, value), steps=STEPS)).node("a").policy
    assert policy.on_error == {"y": expected}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        pytest.param("fp32", "skip", "8:15 Y119 `a.on_error` is `fail`, or a value for each output",
                     id="no values"),
        pytest.param("fp32", "", "8:14 Y119 `a.on_error` is `fail`, or a value for each output",
                     id="nothing"),
        pytest.param("fp32", "{z: 0}", "8:16 Y119 `a` has no output `z`", id="unknown output"),
        pytest.param("fp32", "{y: many}",
                     "8:19 Y119 `a.on_error`: `y` is fp32, but `many` is no number",
                     id="no number"),
        pytest.param("fp32", "{y: nan}",
                     "8:19 Y119 `a.on_error`: `y` is fp32, but `nan` is no finite number",
                     id="nan"),
        pytest.param("fp64", "{y: 1e999}",
                     "8:19 Y119 `a.on_error`: `y` is fp64, but `1e999` is no finite number",
                     id="infinite"),
        pytest.param("fp16", "{y: 70000}", "8:19 Y119 `a.on_error`: `y` is fp16, but `70000` is "
                     "more than fp16 holds (65504)", id="too large for fp16"),
        pytest.param("fp32", "{y: 1e39}", "8:19 Y119 `a.on_error`: `y` is fp32, but `1e39` is "
                     "more than fp32 holds (3.40282e+38)", id="too large for fp32"),
        pytest.param("int8", "{y: 200}",
                     "8:19 Y119 `a.on_error`: `y` is int8, but `200` is outside of -128 to 127",
                     id="too large for int8"),
        pytest.param("uint8", "{y: -1}",
                     "8:19 Y119 `a.on_error`: `y` is uint8, but `-1` is outside of 0 to 255",
                     id="below zero"),
        pytest.param("int32", "{y: 1.0}",
                     "8:19 Y119 `a.on_error`: `y` is int32, but `1.0` is no whole number",
                     id="a fraction"),
        pytest.param("bool", "{y: 0}",
                     "8:19 Y119 `a.on_error`: `y` is bool, but `0` is neither true nor false",
                     id="no flag"),
        pytest.param("fp32", "{y: null}", "8:19 Y119 `a.on_error`: `y` is fp32, but the value is "
                     "empty", id="empty"),
        pytest.param("fp32", "{y: [0]}", "8:19 Y119 `a.on_error`: `y` is fp32, but the value has "
                     "a list of 1 where one element stands", id="a list for one value"),
        pytest.param("fp32[2]", "{y: [0, 1, 2]}", "8:19 Y119 `a.on_error`: `y` is fp32[2], but "
                     "the value has 3 where the shape has 2", id="wrong length"),
        pytest.param("fp32[2]", "{y: [[0, 1]]}", "8:19 Y119 `a.on_error`: `y` is fp32[2], but "
                     "the value has 1 where the shape has 2", id="wrong rank"),
        pytest.param("fp32[1,2]", "{y: [0]}", "8:20 Y119 `a.on_error`: `y` is fp32[1,2], but "
                     "a list has one list for each axis", id="too few axes"),
        pytest.param("fp32[2,2]", "{y: [[0, 1], [2, x]]}",
                     "8:32 Y119 `a.on_error`: `y` is fp32[2,2], but `x` is no number",
                     id="an element deep inside"),
        pytest.param("fp32[-1,-1]", "{y: [[1, 2], [3, 4], [5]]}", "8:36 Y119 `a.on_error`: `y` is "
                     "fp32[-1,-1], but the value differs in shape from the one before it",
                     id="ragged"),
        pytest.param("fp32[-1,-1,-1]", "{y: [[[1, 2]], [[3]]]}", "8:30 Y119 `a.on_error`: `y` is "
                     "fp32[-1,-1,-1], but the value differs in shape from the one before it",
                     id="ragged deep inside"),
        pytest.param("uint8[*,2]", "{y: 0}", "8:19 Y119 `a.on_error`: `y` is uint8[*,2], but a "
                     "list tensor has a list of items, [] for none", id="no list of items"),
        pytest.param("uint8[*,2]", "{y: [[1]]}", "8:20 Y119 `a.on_error`: `y` is uint8[*,2], but "
                     "the value has 1 where the shape has 2", id="an item of another size"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_shape_is_found_where_it_stands(
    kind: str, value: str, expected: str
) -> None:
    result = checked(step(kind, value), steps=STEPS)
    assert lines(result) == [expected]
    assert result.findings[0].hint


def test_every_output_that_is_read_has_a_value() -> None:
    text = """
    pipeline: demo
    inputs: {e: "fp32[4]"}
    nodes:
      head: {model: head, inputs: {embedding: e}, on_error: {score: 0}}
      twice: {model: double, inputs: {x: head.score}, when: 'head.probs[0] < 1'}
      tell: {step: tell, inputs: {"y?": twice.y}, outputs: {text: string}}
    outputs: {text: tell.text}
    """
    steps = "def tell(y):\n    return {'text': ['']}\n"
    result = checked(text, steps=steps)
    assert lines(result) == ["4:57 Y119 `head.on_error` has no value for `probs`, which is read"]
    assert result.findings[0].hint == "add it: on_error: {probs: 0}"
    assert lines(checked(text.replace("when: 'head.probs[0] < 1'", ""), steps=steps)) == []


def test_bf16_has_values_although_numpy_has_none() -> None:
    assert read_value("1.5", parse_type("bf16")) == 1.5
