"""steps.py as a syntax tree: what a step takes and returns is known without running it."""

from __future__ import annotations

from typing import Any

import pytest
from pipelines import MODELS, checked, lines, source

from mmctl.errors import InvalidFiles
from mmctl.pipeline import check_pipeline
from mmctl.pipeline.graph import StepCall

TEXT = """
pipeline: demo
inputs: {x: fp32}
nodes:
  a: {step: f, inputs: {x: x}, outputs: {y: fp32}}
outputs: {y: a.y}
"""


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param("def f(x):\n    return {'y': x}", id="a plain function"),
        pytest.param("def f(x, scale=2):\n    return {'y': x}", id="a parameter with a default"),
        pytest.param("def f(*, x):\n    return {'y': x}", id="a keyword parameter"),
        pytest.param("def f(**all):\n    return {'y': all['x']}", id="any parameters"),
        pytest.param("def f(x):\n    out = {}\n    return out", id="keys that are not written out"),
        pytest.param("def f(x):\n    return {**x}", id="keys taken from elsewhere"),
        pytest.param("def g(x):\n    return 1\nf = g", id="another name for something"),
        pytest.param("from helpers import f", id="imported from a module beside it"),
        pytest.param("from helpers import g as f", id="imported under another name"),
        pytest.param("from shared import f", id="imported from ensembles/common"),
        pytest.param("from common.shared import f", id="imported from common by its full name"),
        pytest.param("from numpy import abs as f", id="imported from a library"),
        pytest.param(
            "def f(x):\n    def inner():\n        return {'z': 1}\n    return {'y': inner()['z']}",
            id="returns of inner functions are not its own",
        ),
        pytest.param(
            "import functools\n@functools.wraps\ndef f(x):\n    return {'y': x}", id="decorated"
        ),
    ],
)
def test_a_step_that_fits_has_no_findings(steps: str) -> None:
    pipeline = source(
        TEXT,
        steps=steps,
        modules={"helpers": "def f(x):\n    return {'y': x}\ng = f\n"},
        common={"shared": "def f(x):\n    return {'y': x}\n"},
    )
    assert lines(check_pipeline(pipeline, MODELS)) == []


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(None, "4:13 Y121 there is no steps.py beside pipeline.yaml, so no function "
                     "`f`", id="no file"),
        pytest.param("def f(x:\n", "steps.py:1:6 Y120 not Python 3.10: '(' was never closed",
                     id="not Python"),
        pytest.param("def f(x):\n    print(x)", "steps.py:1:1 Y123 `f` returns nothing",
                     id="returns nothing"),
        pytest.param("def f(x):\n    return {'y': x, 'z': x}",
                     "steps.py:2:5 Y123 `z` is returned, but `a` does not declare it",
                     id="returns more"),
        pytest.param("def f(x):\n    return {'z': x}",
                     "steps.py:2:5 Y123 `a.y` is declared, but not returned",
                     id="returns it under another name"),
        pytest.param("from shared import g as f", "4:25 Y122 `g` has no parameter `x`",
                     id="imported with other parameters"),
        pytest.param("def f(x, /):\n    return {'y': x}", "4:25 Y122 `f` has no parameter `x`",
                     id="a parameter that has no name for its caller"),
        pytest.param("from shared import *", "4:13 Y121 steps.py has no function `f`",
                     id="not among all that is imported"),
        pytest.param("import model\ndef f(x):\n    return {'y': x}",
                     "4:13 Y120 steps.py imports `model.py`, which is the name of a file of the "
                     "runner of steps", id="a module that would hide the runner"),
        pytest.param("import item_lists\ndef f(x):\n    return {'y': x}",
                     "4:13 Y120 steps.py imports `item_lists.py`, which is the name of a file of "
                     "the runner of steps", id="a module that would hide a part of the runner"),
        pytest.param("from broken import f", "broken.py:1:1 Y120 not Python 3.10: unmatched ')'",
                     id="imports what is not Python"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_fit_is_a_finding(steps: str | None, expected: str) -> None:
    pipeline = source(
        TEXT,
        steps=steps,
        modules={"model": "", "item_lists": "", "broken": ")"},
        common={"shared": "def g(z):\n    return {'y': z}\n"},
    )
    assert lines(check_pipeline(pipeline, MODELS)) == [expected]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param("try:\n    from fast import f\nexcept ImportError:\n    def f(x): ...",
                     id="one of two ways"),
        pytest.param("if True:\n    def f(z): ...", id="under a condition"),
        pytest.param("from typing import Any\nf: Any = print", id="assigned with a type"),
        pytest.param("f, g = print, print", id="assigned with another"),
        pytest.param("from shared import *", id="imported with all else"),
        pytest.param("from numpy import *", id="imported from elsewhere with all else"),
        pytest.param("def f(a=0, /, b=1, x=None):\n    return {'y': x}",
                     id="parameters with defaults"),
        pytest.param("import numpy as f", id="imported under this name"),
        pytest.param("from beside import f", id="imported in a circle"),
        pytest.param("def changed(g):\n    return g\n@changed\ndef f(z):\n    return {'w': z}",
                     id="changed by a decorator"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_of_a_function_is_not_held_against_it(steps: str) -> None:
    pipeline = source(
        TEXT,
        steps=steps,
        modules={"beside": "from steps import f"},
        common={"shared": "def f(x):\n    return {'y': x}\n"},
    )
    assert lines(check_pipeline(pipeline, MODELS)) == []


def test_a_step_gets_the_types_of_what_feeds_it() -> None:
    text = TEXT.replace("x: fp32}", 'x: "uint8[-1,3]"}')
    graph = checked(text, steps="def f(x):\n    return {'y': x}").graph
    assert graph is not None
    assert [str(spec) for spec in graph.nodes[0].takes] == ["x: uint8[-1,3]"]


def test_an_optional_input_is_declared_with_a_question_mark() -> None:
    graph = checked(
        TEXT.replace("{x: x}", '{"x?": x}'), steps="def f(x):\n    return {'y': x}"
    ).graph
    assert graph is not None
    assert graph.nodes[0].takes[0].optional


def shipped(**files: Any) -> dict[str, str]:
    graph = check_pipeline(source(TEXT, **files), MODELS).graph
    assert graph is not None
    call = graph.nodes[0].runs
    assert isinstance(call, StepCall)
    return dict(call.sources)


def test_a_step_ships_only_the_modules_that_it_imports() -> None:
    sources = shipped(
        steps="import one\ndef f(x):\n    import late\n    return {'y': x}",
        modules={"one": "from two import *", "unused": ""},
        common={"two": "", "late": "", "other": ""},
    )
    assert sorted(sources) == ["common/late.py", "common/two.py", "one.py", "steps.py"]


def test_a_module_beside_steps_goes_before_one_of_common() -> None:
    sources = shipped(
        steps="import one\ndef f(x):\n    return {'y': x}",
        modules={"one": "OWN = 1"},
        common={"one": "SHARED = 1"},
    )
    assert sources["one.py"] == "OWN = 1"
    assert "common/one.py" not in sources


def test_modules_may_import_each_other() -> None:
    sources = shipped(
        steps="import one\ndef f(x):\n    return {'y': x}",
        modules={"one": "import two", "two": "import one"},
    )
    assert sorted(sources) == ["one.py", "steps.py", "two.py"]


def test_an_unquoted_question_mark_inside_braces_gets_the_hint_to_quote_it() -> None:
    with pytest.raises(InvalidFiles) as error:
        source(TEXT.replace("{x: x}", "{x?: x}"))
    assert error.value.findings[0].hint == 'quote a name that ends in ? inside { }: "score?"'
