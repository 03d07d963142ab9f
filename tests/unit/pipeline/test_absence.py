"""Rows on which a node is absent: where that may lead, and where it may not."""

from __future__ import annotations

import pytest
from pipelines import checked, lines

TEXT = """
pipeline: demo
inputs: {x: fp32, lang: string}
nodes:
  a: {model: double, inputs: {x: x}, MAY}
  b: {model: double, inputs: {x: a.y}}
  c: {model: double, inputs: {x: x}}
  pick: {switch: {one: "lang == 'en'", two: else}}
  one: {model: double, inputs: {x: x}}
  two: {model: double, inputs: {x: c.y}}
  tell: {step: tell, inputs: {"seen?": b.y, sure: pick.y}, outputs: {text: string}}
outputs: {text: tell.text}
"""
STEPS = "def tell(seen, sure):\n    return {'text': ['']}\n"
MERGE = (
    "merge it with another node in a `switch`, or read it as `x?` in a step; "
    "`on_error` is for failures"
)


def found(old: str = "", new: str = "", may: str = "when: x > 1") -> list[str]:
    assert old in TEXT
    return lines(checked(TEXT.replace(old, new, 1).replace(", MAY", f", {may}"), steps=STEPS))


def test_absence_flows_to_an_input_that_may_be_absent() -> None:
    assert found() == []


def test_an_optional_input_of_a_model_may_be_absent() -> None:
    text = """
    pipeline: demo
    inputs: {text: string}
    nodes:
      a: {model: speller, inputs: {text: text}, required: false}
      b: {model: speller, inputs: {text: text, hint: a.text}}
    outputs: {out: b.text}
    """
    assert lines(checked(text)) == []


def test_what_is_never_absent_may_be_read_as_if() -> None:
    assert found(may="timeout_ms: 5") == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("{text: tell.text}", "{text: tell.text, y: a.y}",
                     "11:31 Y133 `y` shows `a.y`, which is absent where `a.when` is false",
                     id="a condition"),
        pytest.param("{text: tell.text}", "{text: tell.text, y: b.y}",
                     "11:31 Y133 `y` shows `b.y`, which is absent where `a.when` is false",
                     id="a condition of what feeds it"),
        pytest.param("{text: tell.text}", "{text: tell.text, y: one.y}",
                     "11:31 Y133 `y` shows `one.y`, which is absent where `pick` takes another "
                     "branch", id="a branch"),
        pytest.param('"seen?": b.y, sure: pick.y', "seen: b.y, sure: pick.y",
                     "11:17 Y133 `text` shows `tell.text`, which is absent where `a.when` is false",
                     id="an input that must be there"),
        pytest.param(""", two: else""", """, two: "lang == 'de'\"""",
                     "11:17 Y133 `text` shows `tell.text`, which is absent where no condition of "
                     "`pick` holds: it has no `else`", id="a switch without else"),
        pytest.param("two: {model: double, inputs: {x: c.y}}",
                     "two: {model: double, inputs: {x: b.y}}",
                     "11:17 Y133 `text` shows `tell.text`, which is absent where `a.when` is false",
                     id="a branch that may lack what it needs"),
        pytest.param("lang == 'en'", "b.y > 1",
                     "11:17 Y133 `text` shows `tell.text`, which is absent where `a.when` is false",
                     id="a switch on what may be absent"),
    ],
)  # fmt: skip
def test_an_output_of_the_pipeline_is_never_absent(old: str, new: str, expected: str) -> None:
    result = checked(TEXT.replace(old, new, 1).replace(", MAY", ", when: x > 1"), steps=STEPS)
    assert expected in lines(result)
    assert MERGE in [finding.hint for finding in result.findings]
    assert result.graph is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("{text: tell.text}", "{text: tell.text, y: a.y}",
                     "11:31 Y133 `y` shows `a.y`, but `a` is not required", id="an output"),
        pytest.param("two: else", "two: else",
                     "5:34 Y133 `b.x` needs `a.y`, but `a` is not required",
                     id="an input that must be there"),
    ],
)  # fmt: skip
def test_what_need_not_answer_feeds_only_what_can_do_without(
    old: str, new: str, expected: str
) -> None:
    assert expected in found(old, new, may="required: false")


LISTED = """
pipeline: demo
inputs: {x: fp32}
nodes:
  cut: {step: cut, inputs: {x: x}, outputs: {parts: "string[*]"}, MAY}
  each: {model: speller, foreach: cut.parts, inputs: {text: x_text.text, hint: cut.parts}}
  x_text: {step: text, inputs: {x: x}, outputs: {text: string}}
  tell: {step: tell, inputs: {each: each.text}, outputs: {text: string}}
outputs: {text: tell.text}
"""


@pytest.mark.parametrize(
    ("may", "expected"),
    [
        pytest.param("when: x > 1", "8:17 Y133 `text` shows `tell.text`, which is absent where "
                     "`cut.when` is false", id="skipped"),
        pytest.param("required: false", "5:35 Y133 `each.foreach` needs `cut.parts`, but `cut` is "
                     "not required", id="not required"),
    ],
)  # fmt: skip
def test_foreach_needs_its_list_whoever_takes_an_item_may_lack_it(may: str, expected: str) -> None:
    steps = "".join(
        f"def {name}({key}):\n    return {{'{out}': []}}\n\n"
        for name, key, out in [
            ("cut", "x", "parts"),
            ("text", "x", "text"),
            ("tell", "each", "text"),
        ]
    )
    assert lines(checked(LISTED.replace("MAY", may), steps=steps)) == [expected]


def test_a_value_that_must_be_there_is_told_once() -> None:
    assert found("{text: tell.text}", "{text: tell.text, y: b.y}", may="required: false") == [
        "5:34 Y133 `b.x` needs `a.y`, but `a` is not required"
    ]


def test_a_branch_that_need_not_answer_makes_its_switch_absent() -> None:
    expected = (
        "11:17 Y133 `text` shows `tell.text`, which is absent where `one` fails: it is not required"
    )
    assert found("one: {model: double,", "one: {required: false, model: double,") == [expected]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("{x: a.y}", '{"x?": a.y}', "5:31 Y133 `b` always needs `x`: only steps of "
                     "your own can do without", id="a model"),
        pytest.param('{step: tell, inputs: {"seen?": b.y, sure: pick.y}, outputs: {text: string}}',
                     '{step: {use: threshold, at: 1, labels: [a, b]}, inputs: {"score?": b.y}}',
                     "10:66 Y133 `tell` always needs `score`: only steps of your own can do "
                     "without", id="a ready-made step"),
    ],
)  # fmt: skip
def test_only_steps_of_the_users_own_can_do_without(old: str, new: str, expected: str) -> None:
    assert expected in found(old, new, may="retries: 1")
