"""`switch`: rows take one of several ways, and come together again."""

from __future__ import annotations

import pytest
from pipelines import checked, graph_of, lines, source

from mmctl.pipeline.graph import Condition, Merge, Policy, Wire

TEXT = """
pipeline: demo
inputs: {text: string, lang: string, x: fp32}
nodes:
  en: {step: en, inputs: {text: text}, outputs: {reply: string, scores: "fp32[2]"}}
  de: {step: de, inputs: {text: text}, outputs: {reply: string, scores: "fp32[3]"}}
  other: {step: other, inputs: {text: text}, outputs: {reply: bytes, scores: "fp32[2]"}}
  reply: {switch: {en: "lang == 'en'", de: "lang == 'de' and x > 1", other: else}}
  last: {step: last, inputs: {reply: reply.reply, scores: reply.scores}, outputs: {out: string}}
outputs: {out: last.out}
"""
STEPS = """
def en(text):
    return {"reply": text, "scores": text}

def de(text):
    return {"reply": text, "scores": text}

def other(text):
    return {"reply": text, "scores": text}

def last(reply, scores):
    return {"out": reply}
"""
LANG, X = ["ref", "", "lang", []], ["ref", "", "x", []]
IS_EN = ["==", LANG, ["value", "en"]]
IS_DE = ["and", ["==", LANG, ["value", "de"]], [">", X, ["value", 1]]]


def test_a_switch_merges_its_branches() -> None:
    graph = graph_of(source(TEXT, steps=STEPS))
    node = graph.node("reply")
    assert node.runs == Merge(("en", "de", "other"))
    assert (dict(node.inputs), node.takes, node.policy) == ({}, (), Policy())
    assert list(node.needs()) == ["en", "de", "other"]
    assert [n.name for n in graph.nodes] == ["en", "de", "other", "reply", "last"]


def test_an_axis_is_free_where_branches_differ() -> None:
    gives = graph_of(source(TEXT, steps=STEPS)).node("reply").gives
    assert [str(spec) for spec in gives] == ["reply: string", "scores: fp32[-1]"]


@pytest.mark.parametrize(
    ("branch", "condition"),
    [
        pytest.param("en", Condition("lang == 'en'", IS_EN, (Wire("", "lang"),)), id="the first"),
        pytest.param(
            "de",
            Condition("not (lang == 'en') and (lang == 'de' and x > 1)",
                      ["and", ["not", IS_EN], IS_DE], (Wire("", "lang"), Wire("", "x"))),
            id="the second, where the first does not hold"),
        pytest.param(
            "other",
            Condition("not (lang == 'en') and not (lang == 'de' and x > 1)",
                      ["and", ["not", IS_EN], ["not", IS_DE]], (Wire("", "lang"), Wire("", "x"))),
            id="else, where none holds"),
    ],
)  # fmt: skip
def test_a_branch_runs_where_it_is_the_first_whose_condition_holds(
    branch: str, condition: Condition
) -> None:
    assert graph_of(source(TEXT, steps=STEPS)).node(branch).policy == Policy(when=condition)


def test_else_of_two_is_where_the_one_condition_fails() -> None:
    text = TEXT.replace(""", de: "lang == 'de' and x > 1\"""", "").replace(", x: fp32}", "}")
    start, end = text.index("  de:"), text.index("  other:")
    graph = graph_of(source(text[:start] + text[end:], steps=STEPS))
    when = graph.node("other").policy.when
    assert when == Condition("not (lang == 'en')", ["not", IS_EN], (Wire("", "lang"),))


def test_a_switch_may_answer_when_its_branch_fails() -> None:
    text = TEXT.replace("{switch:", '{on_error: {reply: "", scores: [0, 0]}, switch:')
    policy = graph_of(source(text, steps=STEPS)).node("reply").policy
    assert policy == Policy(on_error={"reply": "", "scores": [0.0, 0.0]})


def test_branches_may_be_list_tensors() -> None:
    text = TEXT.replace('"fp32[2]"', '"fp32[*,2]"').replace('"fp32[3]"', '"fp32[*,2]"')
    gives = graph_of(source(text, steps=STEPS)).node("reply").gives
    assert str(gives[1]) == "scores: fp32[*,2]"


@pytest.mark.parametrize(
    ("old", "new", "expected", "hint"),
    [
        pytest.param("other: else", "othr: else", "7:70 Y131 `reply.switch` names `othr`, which is "
                     "no node", "did you mean `other`?", id="an unknown branch"),
        pytest.param("""{en: "lang == 'en'", de: "lang == 'de' and x > 1", other: else}""",
                     """{other: else, en: "lang == 'en'", de: "lang == 'de' and x > 1"}""",
                     "7:27 Y131 `reply.switch`: `else` comes last, after at least one condition",
                     None, id="else first"),
        pytest.param("""de: "lang == 'de' and x > 1\"""", "de: else", "7:44 Y131 `reply.switch`: "
                     "`else` comes last, after at least one condition", None, id="else twice"),
        pytest.param("""en: "lang == 'en'",""", """en: "lang = 'en'",""",
                     "7:24 Y118 `reply.switch`: not a condition", None, id="no condition"),
        pytest.param("""en: "lang == 'en'",""", """en: "lng == 'en'",""",
                     "7:24 Y106 `lng` is no input of the pipeline", "did you mean `lang`?",
                     id="a condition on nothing"),
        pytest.param("""en: "lang == 'en'",""", """en: "lang == 1",""",
                     "7:24 Y118 `lang == 1` compares a text with a number", None,
                     id="a condition that cannot be told"),
        pytest.param("{step: de,", "{step: de, when: x > 5,", "7:40 Y131 `de` has a `when` of its "
                     "own, and is a branch of `reply`",
                     "join both conditions: `reply` decides when `de` runs", id="two conditions"),
        pytest.param("scores: \"fp32[3]\"", "score: \"fp32[3]\"", "7:40 Y131 `de` gives reply: "
                     "string, score: fp32[3], but `en` reply: string, scores: fp32[2]",
                     "branches give the same outputs: rename or cast in a step",
                     id="outputs of other names"),
        pytest.param("fp32[3]", "int32[2]", "7:40 Y131 `de` gives reply: string, scores: int32[2], "
                     "but `en` reply: string, scores: fp32[2]",
                     "branches give the same outputs: rename or cast in a step",
                     id="outputs of another type"),
        pytest.param("fp32[3]", "fp32[2,2]", "7:40 Y131 `de` gives reply: string, scores: "
                     "fp32[2,2], but `en` reply: string, scores: fp32[2]",
                     "branches give the same outputs: rename or cast in a step",
                     id="outputs of another rank"),
        pytest.param("fp32[3]", "fp32[*,2]", "7:40 Y131 `de` gives reply: string, scores: "
                     "fp32[*,2], but `en` reply: string, scores: fp32[2]",
                     "branches give the same outputs: rename or cast in a step",
                     id="list tensors and others"),
        pytest.param("{switch:", "{timeout_ms: 5, switch:", "7:11 Y131 `reply.timeout_ms`: a "
                     "switch calls nothing, so it has no `timeout_ms`", "write it at the branches",
                     id="time of a node that calls nothing"),
        pytest.param("{switch:", "{inputs: {x: x}, switch:", "7:11 Y131 `reply.inputs`: a switch "
                     "calls nothing, so it has no `inputs`", "write it at the branches",
                     id="inputs of a node that calls nothing"),
        pytest.param("{switch:", "{on_error: {reply: none}, switch:",
                     "7:21 Y119 `reply.on_error` has no value for `scores`, which is read",
                     "add it: on_error: {scores: 0}", id="a value that is missing"),
        pytest.param("reply.scores", "reply.score", "8:59 Y106 `reply` has no output `score`",
                     "did you mean `scores`?", id="an output that no branch has"),
        pytest.param("other: {step:", "other: {step: other, switch:", "6:3 Y104 `other` is a step "
                     "and a switch: a node is one of them", None, id="two kinds"),
    ],
)  # fmt: skip
def test_a_switch_that_cannot_choose_is_found_at_its_place(
    old: str, new: str, expected: str, hint: str | None
) -> None:
    assert old in TEXT
    result = checked(TEXT.replace(old, new), steps=STEPS)
    assert (lines(result)[0], result.findings[0].hint) == (expected, hint)
    assert result.graph is None


@pytest.mark.parametrize("value", ["lang", "[en, de]", "{}", "{en: [a]}"])
def test_a_switch_maps_nodes_to_conditions(value: str) -> None:
    text = TEXT.replace(
        """{en: "lang == 'en'", de: "lang == 'de' and x > 1", other: else}""", value
    )
    assert {line.split()[1] for line in lines(checked(text, steps=STEPS))} == {"Y005"}


def test_a_node_belongs_to_one_switch() -> None:
    text = TEXT.replace("  last:", '  again: {switch: {en: "x > 1", other: else}}\n  last:')
    found = lines(checked(text, steps=STEPS))
    assert "8:20 Y131 `en` is a branch of `reply` too" in found


def test_a_switch_is_no_branch() -> None:
    text = TEXT.replace("  last:", '  again: {switch: {reply: "x > 1"}}\n  last:')
    found = lines(checked(text, steps=STEPS))
    assert "8:20 Y131 `reply` is a switch: one switch cannot choose another" in found


def test_a_circle_through_a_switch_is_found_at_its_condition() -> None:
    result = checked(TEXT.replace("lang == 'en'", "last.out == 'en'"), steps=STEPS)
    circle = "nodes feed each other in a circle: en -> reply -> last -> en"
    assert f"7:24 Y112 {circle}" in lines(result)
    assert "remove that, or split `en` in two nodes" in [f.hint for f in result.findings]
