"""What a step function provably does with its parameters."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from mmctl.pipeline.passing import passed_on, unread


def function(body: str, parameters: str = "text, state") -> ast.FunctionDef:
    source = f"def step({parameters}):\n" + "".join(
        f"    {line}\n" for line in dedent(body).strip().splitlines()
    )
    [tree] = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    return tree


PASSED = [
    'return {"text": text, "state": state + 1}',
    'rows = [row.upper() for row in state]\nreturn {"text": text, "state": rows}',
    'n = len(text)\nreturn {"text": text, "state": state[:n]}',
    'if len(state):\n    return {"text": text}\nreturn {"text": text, "state": state * 2}',
    'def inner():\n    return 5\nreturn {"text": text, "n": inner()}',
    'print(text.tolist())\nreturn {"text": text}',
]


@pytest.mark.parametrize("body", PASSED)
def test_a_parameter_that_is_returned_untouched_is_handed_on(body: str) -> None:
    assert passed_on(function(body)) == {"text": "text"}


NOT_PASSED = {
    "another name for the key": "return {KEY: text}",
    "not on every return": 'if state:\n    return {"text": text}\nreturn {"text": state.copy()}',
    "one return hides its keys": 'if state:\n    return made(state)\nreturn {"text": text}',
    "assigned": 'text = text.copy()\nreturn {"text": text}',
    "changed in place": 'text[0] = ""\nreturn {"text": text}',
    "added to": 'text += 1\nreturn {"text": text}',
    "sorted": 'text.sort()\nreturn {"text": text}',
    "given to somebody": 'clean(text)\nreturn {"text": text}',
    "given by name": 'clean(values=text)\nreturn {"text": text}',
    "given as a part": 'clean(text[0])\nreturn {"text": text}',
    "given with a star": 'clean(*text)\nreturn {"text": text}',
    "changed by another name": 'other = text\nother[0] = 1\nreturn {"text": text}',
    "a row of it is changed": 'for row in text:\n    row[0] = 1\nreturn {"text": text}',
    "a view of it is changed": 'flat = text.ravel()\nflat[0] = 1\nreturn {"text": text}',
    "a view of a view": 'a = text.ravel()\nb = a[1:]\nb.fill(0)\nreturn {"text": text}',
    "in a comprehension": '[row.fill(0) for row in text]\nreturn {"text": text}',
    "by an inner function": 'def f():\n    nonlocal text\n    text = 1\nf()\nreturn {"text": text}',
    "of a loop": 'for text in state:\n    pass\nreturn {"text": text}',
    "no dict": "return text",
    "nothing": "pass",
}


@pytest.mark.parametrize("body", NOT_PASSED.values(), ids=NOT_PASSED)
def test_what_cannot_be_proven_is_not_said(body: str) -> None:
    assert passed_on(function(body)) == {}


def test_a_parameter_may_come_back_under_another_name() -> None:
    assert passed_on(function('return {"out": text, "again": text}')) == {
        "out": "text",
        "again": "text",
    }


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('return {"y": text}', {"state"}),
        ('return {"y": 1}', {"text", "state"}),
        ('def f():\n    return state\nreturn {"y": f()}', {"text"}),
        ('state = 3\nreturn {"y": 1}', {"text"}),
        ('return {"y": locals()["text"]}', set()),
        ('return {"y": eval("text")}', set()),
    ],
)
def test_a_parameter_that_stands_nowhere_is_never_read(body: str, names: set[str]) -> None:
    assert unread(function(body)) == names
