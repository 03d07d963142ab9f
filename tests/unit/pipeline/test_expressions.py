"""Conditions: what may stand in one, and what the runner reads of it."""

from __future__ import annotations

import re

import pytest
from pipelines import checked, graph_of, lines, source

from mmctl.pipeline.expressions import conjunction, negation, parse_condition
from mmctl.pipeline.graph import Condition, Json, Wire

TEXT = """
pipeline: demo
inputs: {e: "fp32[4]", lang: string, sure: bool, x: fp32}
nodes:
  spell: {model: speller, inputs: {text: lang}}
  flags: {step: flags, inputs: {sure: sure, x: x}, outputs: {on: "bool[2]", cuts: "fp32[*,2]"}}
  head: {model: head, inputs: {embedding: e}, when: "CONDITION"}
  tell:
    step: tell
    inputs: {"score?": head.score, on: flags.on, cuts: flags.cuts, text: spell.text}
    outputs: {text: string}
outputs: {text: tell.text}
"""
STEPS = """
def flags(sure, x):
    return {"on": sure, "cuts": [[]]}

def tell(score, on, cuts, text):
    return {"text": text}
"""


def ref(name: str, *subscripts: int) -> Json:
    node, _, tensor = name.rpartition(".")
    return ["ref", node, tensor, list(subscripts)]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        pytest.param("x < 0.8", ["<", ref("x"), ["value", 0.8]], id="less"),
        pytest.param("e[1] <= -1", ["<=", ref("e", 1), ["value", -1]], id="a number below zero"),
        pytest.param("lang == 'en'", ["==", ref("lang"), ["value", "en"]], id="text"),
        pytest.param("sure", ref("sure"), id="a flag of one value a row"),
        pytest.param("flags.on[1]", ref("flags.on", 1), id="a flag of several"),
        pytest.param("sure != true", ["!=", ref("sure"), ["value", True]], id="YAML's true"),
        pytest.param("sure == False", ["==", ref("sure"), ["value", False]],
                     id="false as Python has it"),
        pytest.param("not sure", ["not", ref("sure")], id="not"),
        pytest.param("sure and x > 1 and x >= 2",
                     ["and", ref("sure"), [">", ref("x"), ["value", 1]],
                      [">=", ref("x"), ["value", 2]]], id="and"),
        pytest.param("sure or not (x > 1 and sure)",
                     ["or", ref("sure"), ["not", ["and", [">", ref("x"), ["value", 1]],
                                                  ref("sure")]]], id="or, not and brackets"),
        pytest.param("0 < x <= e[0]",
                     ["and", ["<", ["value", 0], ref("x")], ["<=", ref("x"), ref("e", 0)]],
                     id="a chain"),
    ],
)  # fmt: skip
def test_a_condition_is_read_as_a_tree(text: str, tree: Json) -> None:
    node = graph_of(source(TEXT.replace("CONDITION", text), steps=STEPS)).node("head")
    assert node.policy.when is not None
    assert (node.policy.when.text, node.policy.when.tree) == (text, tree)


def test_a_condition_knows_what_it_reads_each_tensor_once() -> None:
    text = "spell.text == 'a' or e[0] < e[1]"
    node = graph_of(source(TEXT.replace("CONDITION", text), steps=STEPS)).node("head")
    assert isinstance(node.policy.when, Condition)
    assert node.policy.when.wires == (Wire("spell", "text"), Wire("", "e"))
    assert list(node.needs()) == ["spell"]


def test_trees_are_joined_and_turned_round() -> None:
    one, two = ref("sure"), ref("a.b")
    assert negation(one) == ["not", one]
    assert conjunction([one, two]) == ["and", one, two]
    assert conjunction([one]) == one


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("e[0] >", "not a condition", id="not an expression"),
        pytest.param("", "not a condition", id="nothing"),
        pytest.param("sure; x", "not a condition", id="two"),
        pytest.param("e[0:2] > 1", "`e[0:2]` may not stand in a condition", id="a slice"),
        pytest.param("e[-1] > 1", "`e[-1]` may not stand in a condition", id="from the end"),
        pytest.param("e[x] > 1", "`e[x]` may not stand in a condition", id="a computed subscript"),
        pytest.param("e[True] > 1", "`e[True]` may not stand in a condition", id="a flag"),
        pytest.param("x + 1 > 2", "`x + 1` may not stand in a condition", id="arithmetic"),
        pytest.param("-x > 2", "`-x` may not stand in a condition", id="minus a tensor"),
        pytest.param("-True == sure", "`-True` may not stand in a condition", id="minus true"),
        pytest.param("lang in 'en'", "`lang in 'en'` may not stand in a condition", id="in"),
        pytest.param("x is x", "`x is x` may not stand in a condition", id="is"),
        pytest.param("x == None", "`None` may not stand in a condition", id="none"),
        pytest.param("x < 1e999", "`1e309` may not stand in a condition", id="infinite"),
        pytest.param("x < 1" + "0" * 400, "a number may not be longer than float64 holds",
                     id="more than float64 holds"),
        pytest.param("x < -1" + "0" * 400, "a number may not be longer than float64 holds",
                     id="less than float64 holds"),
        pytest.param("lang == '\\ud800'", "a text may not hold half a character",
                     id="half a character"),
        pytest.param("x < 1j", "`1j` may not stand in a condition", id="complex"),
        pytest.param("(x < 1) == (x < 2)", "`x < 1` may not stand in a condition",
                     id="a comparison of comparisons"),
        pytest.param("a.b.c == 1", "`a.b.c` may not stand in a condition", id="two dots"),
        pytest.param("__import__('os').system('true')",
                     "`__import__('os').system('true')` may not stand in a condition", id="a call"),
        pytest.param("(lambda: x)() < 1", "`(lambda: x)()` may not stand in a condition",
                     id="a function"),
        pytest.param("x if sure else x", "`x if sure else x` may not stand in a condition",
                     id="a choice"),
        pytest.param("f'{x}' == lang", "`f'{x}'` may not stand in a condition", id="an f-string"),
        pytest.param("1 < 2", "it reads no tensor, so it is the same for every row",
                     id="no tensor"),
    ],
)  # fmt: skip
def test_what_may_not_stand_in_a_condition(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("e[0] >", "6:53 Y118 `head.when`: not a condition", id="not a condition"),
        pytest.param("spel.text == 'a'", "6:53 Y106 `spel.text`: there is no node `spel`",
                     id="an unknown node"),
        pytest.param("spell.txt == 'a'", "6:53 Y106 `spell` has no output `txt`",
                     id="an unknown tensor"),
        pytest.param("langu == 'a'", "6:53 Y106 `langu` is no input of the pipeline",
                     id="an unknown input"),
        pytest.param("spell.text[0] == 'a'", "6:53 Y118 `spell.text[0]`: one value of "
                     "`spell.text` (string) takes 0 subscripts, this has 1",
                     id="a subscript of a single value"),
        pytest.param("e > 1", "6:53 Y118 `e`: one value of `e` (fp32[4]) takes 1 subscripts, "
                     "this has 0", id="a whole row"),
        pytest.param("e[4] > 1", "6:53 Y118 `e[4]`: 4 is past the end of fp32[4]",
                     id="past the end"),
        pytest.param("flags.cuts[0] > 1", "6:53 Y118 `flags.cuts` is the list tensor fp32[*,2]: a "
                     "condition reads one value a row", id="a list tensor"),
        pytest.param("x == '1'", "6:53 Y118 `x == '1'` compares a number with a text",
                     id="a number with text"),
        pytest.param("lang < 1", "6:53 Y118 `lang < 1` compares a text with a number",
                     id="text with a number"),
        pytest.param("sure == 1", "6:53 Y118 `sure == 1` compares true or false with a number",
                     id="a flag with a number"),
        pytest.param("sure < true", "6:53 Y118 `sure < True`: true and false have no order",
                     id="the order of flags"),
        pytest.param("x", "6:53 Y118 `x` is a number, not true or false: compare it with a number",
                     id="a bare number"),
        pytest.param("sure and lang", "6:53 Y118 `lang` is a text, not true or false: compare it "
                     "with a text", id="a bare text inside"),
        pytest.param("sure or 1", "6:53 Y118 `1` is a number, not true or false: compare it with "
                     "a number", id="a bare constant"),
    ],
)  # fmt: skip
def test_a_condition_that_cannot_be_told_is_found_at_its_place(text: str, expected: str) -> None:
    assert lines(checked(TEXT.replace("CONDITION", text), steps=STEPS)) == [expected]


def test_what_is_wrong_in_several_places_is_told_for_each() -> None:
    found = lines(checked(TEXT.replace("CONDITION", "e[7] < 1 or e[9] < 1"), steps=STEPS))
    assert [line.split("`")[1] for line in found] == ["e[7]", "e[9]"]


def test_what_a_broken_condition_may_read_is_not_called_unused() -> None:
    text = TEXT.replace("CONDITION", "x >").replace("x: x", "x: e")
    assert "Y113" not in [line.split()[1] for line in lines(checked(text, steps=STEPS))]


def test_what_python_warns_of_is_not_printed() -> None:
    """Warnings are errors in tests, and would make this no condition at all."""
    assert parse_condition("x < 1or sure")[0][0] == "or"


def test_a_condition_of_more_than_500_characters_is_refused() -> None:
    text = TEXT.replace("CONDITION", " or ".join(["e[0] < 1"] * 60))
    assert any("at most 500 characters" in line for line in lines(checked(text, steps=STEPS)))
