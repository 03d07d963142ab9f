"""What becomes of the other nodes when one fails."""

from __future__ import annotations

import pytest
from pipelines import graph_of, source

from mmctl.pipeline.graph import Graph
from mmctl.trials.fates import Fate, fates_of, lucky_nodes

RUNS, FAILS, ABSORBED = Fate.RUNS, Fate.FAILS, Fate.ABSORBED
DROPPED, ABSENT = Fate.DROPPED, Fate.ABSENT

STEPS = """
def cut(x):
    return {"y": [[]]}

def part(y):
    return {"y": y}

def either(a, b):
    return {"y": a}
"""
EITHER = "{step: either, inputs: {%s}, outputs: {y: fp32}%s}"


def graph(nodes: dict[str, str], output: str, rules: str = "") -> Graph:
    lines = "".join(f"  {name}: {text}\n" for name, text in nodes.items())
    text = (
        f"pipeline: demo\ninputs: {{x: fp32}}\n{rules}nodes:\n{lines}outputs: {{out: {output}}}\n"
    )
    return graph_of(source(text, steps=STEPS))


def call(reads: str, policy: str = "") -> str:
    return f"{{model: double, inputs: {{x: {reads}}}{policy}}}"


DEFAULT = ", on_error: {y: 0}"
LAX = ", required: false"


@pytest.mark.parametrize(
    ("nodes", "output", "fates"),
    [
        pytest.param(
            {
                "a": call("x"),
                "b": call("a.y"),
                "c": call("x"),
                "d": EITHER % ("a: b.y, b: c.y", ""),
            },
            "d.y",
            {"a": FAILS, "b": FAILS, "c": RUNS, "d": FAILS},
            id="a failure flows along edges and nowhere else",
        ),
        pytest.param(
            {"a": call("x", DEFAULT), "b": call("a.y")},
            "b.y",
            {"a": ABSORBED, "b": RUNS},
            id="on_error ends it",
        ),
        pytest.param(
            {"a": call("x"), "b": call("a.y"), "c": call("b.y", DEFAULT), "d": call("c.y")},
            "d.y",
            {"a": FAILS, "b": FAILS, "c": ABSORBED, "d": RUNS},
            id="so does the first on_error on the way",
        ),
        pytest.param(
            {"a": call("x", LAX), "b": EITHER % ('"a?": a.y, b: x', "")},
            "b.y",
            {"a": DROPPED, "b": RUNS},
            id="what is not required is left out",
        ),
        pytest.param(
            {"a": call("x"), "b": EITHER % ('"a?": a.y, b: x', "")},
            "b.y",
            {"a": FAILS, "b": FAILS},
            id="an optional input does not help against a failure",
        ),
        pytest.param(
            {"a": call("x"), "b": call("x", ", after: [a]")},
            "b.y",
            {"a": FAILS, "b": FAILS},
            id="after waits for success",
        ),
        pytest.param(
            {
                "a": call("x"),
                "b": call("x", ", after: [a], on_error: {y: 1}"),
                "c": EITHER % ("a: b.y, b: x", ""),
            },
            "c.y",
            {"a": FAILS, "b": ABSORBED, "c": RUNS},
            id="a failure that flows through after is absorbed as well",
        ),
        pytest.param(
            {
                "a": call("x"),
                "b": call("x"),
                "c": EITHER % ('"a?": a.y, "b?": b.y', ", quorum: {need: 1, of: [a, b]}"),
            },
            "c.y",
            {"a": FAILS, "b": RUNS, "c": RUNS},
            id="a quorum goes on without it",
        ),
        pytest.param(
            {
                "a": call("x"),
                "b": call("x"),
                "c": EITHER % ('"a?": a.y, "b?": b.y', ", quorum: {need: 2, of: [a, b]}"),
            },
            "c.y",
            {"a": FAILS, "b": RUNS, "c": FAILS},
            id="a quorum that needs it fails",
        ),
        pytest.param(
            {"a": call("x"), "b": call("x"), "c": '{switch: {a: "x > 1", b: else}}'},
            "c.y",
            {"a": FAILS, "b": RUNS, "c": FAILS},
            id="a switch fails with the branch that was taken",
        ),
        pytest.param(
            {
                "a": call("x"),
                "b": call("x", ', when: "a.y > 0", on_error: {y: 1}'),
                "c": EITHER % ('"a?": b.y, b: x', ""),
            },
            "c.y",
            {"a": FAILS, "b": ABSORBED, "c": RUNS},
            id="a condition on a failed value fails",
        ),
        pytest.param(
            {
                "a": call("x", LAX),
                "b": "{step: cut, inputs: {x: x}, outputs: {y: 'fp32[*]'}, when: 'a.y > 0'}",
                "c": "{step: part, foreach: b.y, inputs: {'y?': b.y}, outputs: {y: fp32}}",
                "d": EITHER % ('"a?": c.y, b: x', ""),
            },
            "d.y",
            {"a": DROPPED, "b": ABSENT, "c": ABSENT, "d": RUNS},
            id="no items of nothing",
        ),
        pytest.param(
            {
                "a": call("x", LAX),
                "b": call("x", ', when: "a.y > 0"'),
                "c": EITHER % ('"a?": b.y, b: x', ""),
            },
            "c.y",
            {"a": DROPPED, "b": ABSENT, "c": RUNS},
            id="a condition on nothing is false",
        ),
    ],
)
def test_fates(nodes: dict[str, str], output: str, fates: dict[str, Fate]) -> None:
    assert fates_of(graph(nodes, output), "a") == fates


def test_after_the_deadline_nothing_is_started_that_comes_after() -> None:
    nodes = {
        "a": call("x", DEFAULT),
        "b": call("a.y", DEFAULT),
        "c": call("x"),
        "d": EITHER % ("a: b.y, b: c.y", ""),
    }
    found = fates_of(graph(nodes, "d.y", "deadline_ms: 100\n"), "a", too_late=True)
    assert found == {"a": ABSORBED, "b": ABSORBED, "c": RUNS, "d": FAILS}


def test_a_quorum_does_not_wait_for_what_it_can_do_without() -> None:
    nodes = {
        "a": call("x"),
        "b": call("x"),
        "any": EITHER % ('"a?": a.y, "b?": b.y', ", quorum: {need: 1, of: [a, b]}"),
        "both": EITHER % ('"a?": a.y, "b?": b.y', ", quorum: {need: 2, of: [a, b]}"),
        "c": EITHER % ("a: any.y, b: both.y", ""),
    }
    found = fates_of(graph(nodes, "c.y", "deadline_ms: 100\n"), "a", too_late=True)
    assert found == {"a": FAILS, "b": RUNS, "any": RUNS, "both": FAILS, "c": FAILS}


def test_what_rests_on_the_quickest_of_a_quorum_is_luck() -> None:
    nodes = {
        "a": call("x"),
        "b": call("x"),
        "any": EITHER % ('"a?": a.y, "b?": b.y', ", quorum: {need: 1, of: [a, b]}"),
        "both": EITHER % ('"a?": a.y, "b?": b.y', ", quorum: {need: 2, of: [a, b]}"),
        "c": EITHER % ("a: any.y, b: both.y", ""),
    }
    assert lucky_nodes(graph(nodes, "c.y")) == {"any", "c"}
