"""What a declaration promises for each fault."""

from __future__ import annotations

import pytest
from pipelines import graph_of, source

from mmctl.pipeline.graph import Form, Graph
from mmctl.trials.faults import Fault, sleep_ms
from mmctl.trials.promises import (
    STRICT,
    Outcome,
    Promise,
    calling_nodes,
    compared_outputs,
    promise_of,
)

SLOW, RAISING, EMPTY, MISSHAPED, DEAD = Fault
DECLARED, ERROR = Outcome.DECLARED, Outcome.ERROR

STEPS = """
def either(a, b):
    return {"y": a}
"""


def one_model(policy: str = "", rules: str = "") -> Graph:
    """`a` under test, then `b`, which shows it."""
    text = f"""pipeline: demo
inputs: {{x: fp32}}
{rules}
nodes:
  a: {{model: double, inputs: {{x: x}}{policy}}}
  b: {{step: either, inputs: {{"a?": a.y, b: x}}, outputs: {{y: fp32}}}}
outputs: {{out: b.y}}
"""
    return graph_of(source(text, steps=STEPS))


def promise(graph: Graph, fault: Fault, form: Form = "bls") -> Promise:
    return promise_of(graph, form, graph.node("a"), fault)


TIMEOUT, DEFAULT, LAX = ", timeout_ms: 100", ", on_error: {y: 0}", ", required: false"


@pytest.mark.parametrize(
    ("policy", "fault", "promised"),
    [
        pytest.param("", SLOW, Promise(Outcome.RIGHT), id="without a timeout it is waited for"),
        pytest.param(
            "", RAISING, Promise(ERROR, "a", beyond_ms=2000), id="an error names the node"
        ),
        pytest.param("", DEAD, Promise(ERROR, "a", beyond_ms=2000), id="a dead one is told of"),
        pytest.param("", EMPTY, Promise(ERROR, "a", beyond_ms=2000), id="nothing is an error"),
        pytest.param(TIMEOUT, SLOW, Promise(ERROR, "a", beyond_ms=200), id="a timeout is an error"),
        pytest.param(
            TIMEOUT + DEFAULT,
            SLOW,
            Promise(DECLARED, "", ("a",), (), 200),
            id="with declared values it is answered in time",
        ),
        pytest.param(
            DEFAULT,
            MISSHAPED,
            Promise(DECLARED, "", ("a",), (), 2000),
            id="a wrong shape is a failure",
        ),
        pytest.param(
            TIMEOUT + DEFAULT,
            DEAD,
            Promise(DECLARED, "", ("a",), (), 200),
            id="the timeout is for a dead one too",
        ),
        pytest.param(
            LAX, RAISING, Promise(DECLARED, "", (), ("a",), 2000), id="what may be missing is left"
        ),
        pytest.param(
            ", retries: 2",
            DEAD,
            Promise(ERROR, "a", beyond_ms=6000),
            id="each try at a dead one costs as much",
        ),
    ],
)
def test_promises(policy: str, fault: Fault, promised: Promise) -> None:
    assert promise(one_model(policy), fault) == promised


def test_strictly_times_are_kept_within_five_percent_and_ten_milliseconds() -> None:
    graph = one_model(TIMEOUT)
    assert promise_of(graph, "bls", graph.node("a"), SLOW, STRICT).beyond_ms == 115


def test_a_deadline_is_a_limit_for_each_node() -> None:
    found = promise(one_model("", "deadline_ms: 300"), SLOW)
    assert found == Promise(ERROR, "a", beyond_ms=500)


def test_after_the_deadline_the_error_names_the_node_that_was_not_started() -> None:
    found = promise(one_model(DEFAULT, "deadline_ms: 300"), SLOW)
    assert found == Promise(ERROR, "b", beyond_ms=500)


def test_of_several_nodes_that_were_not_started_an_error_may_name_any() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    deadline_ms: 300
    nodes:
      a: {model: double, inputs: {x: x}, on_error: {y: 0}}
      b: {model: double, inputs: {x: a.y}}
      c: {model: double, inputs: {x: a.y}}
    outputs: {b: b.y, c: c.y}
    """
    assert promise(graph_of(source(text)), SLOW) == Promise(ERROR, "", beyond_ms=500)


def test_of_a_dead_node_triton_may_tell_before_the_deadline_or_after() -> None:
    graph = one_model(DEFAULT, "deadline_ms: 300")
    late = Promise(ERROR, "b", beyond_ms=500)
    assert promise(graph, DEAD) == Promise(DECLARED, "", ("a",), (), 500, late)
    assert promise(graph, DEAD).text == "answer, `on_error` of `a` or error that names `b`"


def test_a_node_with_a_shorter_timeout_is_absorbed_before_the_deadline() -> None:
    found = promise(one_model(TIMEOUT + DEFAULT, "deadline_ms: 300"), SLOW)
    assert found == Promise(DECLARED, "", ("a",), (), 200)


@pytest.mark.parametrize("fault", [RAISING, DEAD])
def test_an_ensemble_tells_of_an_error_without_a_name(fault: Fault) -> None:
    assert promise(one_model(), fault, "ensemble") == Promise(ERROR, beyond_ms=2000)


@pytest.mark.parametrize("fault", [EMPTY, MISSHAPED])
def test_an_ensemble_promises_nothing_about_wrong_answers(fault: Fault) -> None:
    assert promise(one_model(), fault, "ensemble") == Promise(Outcome.NOTHING)


@pytest.mark.parametrize(
    ("promised", "text"),
    [
        pytest.param(Promise(ERROR, "a"), "error that names `a`", id="error"),
        pytest.param(Promise(ERROR), "error", id="error without a name"),
        pytest.param(
            Promise(DECLARED, "", ("a", "b"), ("c",)),
            "answer, `on_error` of `a`, `b`, without `c`",
            id="answer",
        ),
        pytest.param(Promise(DECLARED), "answer", id="answer of a quorum"),
        pytest.param(Promise(Outcome.RIGHT), "the right answer, late", id="late"),
    ],
)
def test_a_promise_in_words(promised: Promise, text: str) -> None:
    assert promised.text == text


def test_a_switch_calls_nothing() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
      b: {model: double, inputs: {x: x}}
      c: {switch: {a: "x > 1", b: else}}
    outputs: {y: c.y}
    """
    assert [node.name for node in calling_nodes(graph_of(source(text)))] == ["a", "b"]


def test_outputs_that_are_luck_are_not_compared() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
      b: {model: double, inputs: {x: x}}
      c:
        step: either
        inputs: {"a?": a.y, "b?": b.y}
        outputs: {y: fp32}
        quorum: {need: 1, of: [a, b]}
    outputs: {any: c.y, sure: a.y}
    """
    assert compared_outputs(graph_of(source(text, steps=STEPS))) == ("sure",)


@pytest.mark.parametrize(
    ("limit_ms", "sleep"),
    [
        pytest.param(None, 500, id="as long as it takes"),
        pytest.param(50, 300, id="a short timeout"),
        pytest.param(200, 600, id="a longer timeout"),
    ],
)
def test_a_slow_node_sleeps_long_beyond_its_time(limit_ms: float | None, sleep: float) -> None:
    assert sleep_ms(limit_ms) == sleep
