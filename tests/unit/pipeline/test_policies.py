"""Policies of nodes and rules of the pipeline: what they become, and what is wrong with them."""

from __future__ import annotations

import pytest
from pipelines import checked, graph_of, lines, source

from mmctl.diagnostics import Severity
from mmctl.pipeline.graph import Policy, Quorum, Rules

TEXT = """
pipeline: demo
inputs: {e: "fp32[4]", lang: string}
nodes:
  head: {model: head, inputs: {embedding: e}}
  spell: {model: speller, inputs: {text: lang}}
outputs: {score: head.score, probs: head.probs, lang_out: spell.text}
"""
HEAD = "head: {model: head, inputs: {embedding: e}"

TELL = """
pipeline: demo
inputs: {x: fp32}
nodes:
  a: {model: double, inputs: {x: x}}
  b: {model: double, inputs: {x: x}}
  tell: {step: tell, inputs: {"a?": a.y, "b?": b.y}, outputs: {text: string}}
outputs: {text: tell.text}
"""
TELL_STEPS = "def tell(a=None, b=None):\n    return {'text': ['']}\n"


def with_policy(policy: str) -> str:
    """The pipeline when `head` has this policy; it begins at column 47 of line 4."""
    return TEXT.replace(HEAD, f"{HEAD}, {policy}")


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        pytest.param("timeout_ms: 300", Policy(timeout_ms=300), id="time"),
        pytest.param("retries: 1", Policy(retries=1), id="more tries"),
        pytest.param("hedge_ms: 20.5", Policy(hedge_ms=20.5), id="a second call"),
        pytest.param("after: [spell, spell]", Policy(after=("spell",)), id="order"),
        pytest.param("max_in_flight: 4", Policy(max_in_flight=4), id="calls at a time"),
        pytest.param("on_error: {score: -1, probs: [0, 1]}",
                     Policy(on_error={"score": -1.0, "probs": [0.0, 1.0]}), id="values"),
        pytest.param("retries: 0, on_error: fail, required: true, after: []", Policy(),
                     id="nothing, in many words"),
    ],
)  # fmt: skip
def test_a_policy_becomes_what_the_graph_says_of_its_node(written: str, policy: Policy) -> None:
    node = graph_of(source(with_policy(written))).node("head")
    assert node.policy == policy


def test_a_node_runs_after_those_that_its_policies_name() -> None:
    graph = graph_of(source(with_policy("after: [spell]")))
    assert [node.name for node in graph.nodes] == ["spell", "head"]
    assert list(graph.node("head").needs()) == ["spell"]


def test_a_quorum_is_read_with_the_inputs_that_may_be_absent() -> None:
    text = TELL.replace("{step: tell,", "{step: tell, quorum: {need: 1, of: [a, b]},")
    node = graph_of(source(text, steps=TELL_STEPS)).node("tell")
    assert node.policy.quorum == Quorum(1, ("a", "b"))
    assert [spec.optional for spec in node.takes] == [True, True]


def test_what_may_fail_for_good_feeds_what_can_do_without() -> None:
    text = TELL.replace("a: {model: double,", "a: {model: double, required: false,")
    assert graph_of(source(text, steps=TELL_STEPS)).node("a").policy == Policy(required=False)


@pytest.mark.parametrize(
    ("written", "rules"),
    [
        pytest.param("deadline_ms: 500", Rules(deadline_ms=500), id="deadline"),
        pytest.param("max_pending: 5", Rules(max_pending=5), id="admission"),
        pytest.param("provenance: true", Rules(provenance=True), id="provenance"),
        pytest.param("form: bls", Rules(form="bls"), id="pinned form"),
        pytest.param("fuse: auto", Rules(fuse="auto"), id="all that can be fused"),
        pytest.param("fuse: [head, spell]", Rules(fuse=("head", "spell")), id="nodes to fuse"),
        pytest.param("provenance: false", Rules(), id="nothing"),
    ],
)
def test_what_a_pipeline_says_of_itself_becomes_its_rules(written: str, rules: Rules) -> None:
    assert graph_of(source(f"{written}{TEXT}")).rules == rules


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("timeout_ms: 0", "4:59 Y005 `timeout_ms`: input should be greater than 0",
                     id="no time"),
        pytest.param("hedge_ms: -1", "4:57 Y005 `hedge_ms`: input should be greater than 0",
                     id="time below zero"),
        pytest.param("max_in_flight: 257",
                     "4:62 Y005 `max_in_flight`: input should be less than or equal to 256",
                     id="more calls than threads"),
        pytest.param("after: [spel]", "4:55 Y119 `head.after` names `spel`, which is no node",
                     id="after an unknown node"),
        pytest.param("after: [head]", "4:55 Y119 `head.after` names the node itself",
                     id="after itself"),
        pytest.param("on_error: {score: 0, probs: 0}, required: false",
                     "4:89 Y119 `head` has `on_error`, so it never lacks: `required: false` says "
                     "it may", id="never absent and not required"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_kept_is_found_at_its_place(policy: str, expected: str) -> None:
    assert expected in lines(checked(with_policy(policy)))


@pytest.mark.parametrize(
    ("quorum", "expected", "hint"),
    [
        pytest.param("{need: 3, of: [a, b]}", "6:37 Y119 `tell.quorum` needs 3 of 2", None,
                     id="more than there are"),
        pytest.param("{need: 0, of: [a, b]}",
                     "6:37 Y005 `need`: input should be greater than or equal to 1", None,
                     id="none"),
        pytest.param("{need: 1, of: [a, c]}",
                     "6:48 Y119 `tell.quorum` names `c`, which is no node",
                     "known here: `a`, `b`, `tell`", id="an unknown node"),
        pytest.param("{need: 1, of: [a, a]}", "6:48 Y119 `tell.quorum` names `a` twice", None,
                     id="a node twice"),
        pytest.param("{need: 1, of: [a, tell]}",
                     "6:48 Y119 `tell.quorum` names `tell`, which does not feed `tell`",
                     'wire it to an input that may be absent, such as "tell?"', id="no feeder"),
    ],
)  # fmt: skip
def test_a_quorum_that_cannot_be_reached_is_found(
    quorum: str, expected: str, hint: str | None
) -> None:
    text = TELL.replace("{step: tell,", f"{{step: tell, quorum: {quorum},")
    result = checked(text, steps=TELL_STEPS)
    assert lines(result) == [expected]
    assert result.findings[0].hint == hint


def test_a_quorum_goes_on_without_its_late_nodes_so_their_inputs_may_be_absent() -> None:
    text = TELL.replace("{step: tell,", "{step: tell, quorum: {need: 1, of: [a, b]},")
    result = checked(text.replace('"b?":', "b:"), steps=TELL_STEPS)
    assert lines(result) == ["6:48 Y119 `tell.quorum` names `b`, which `tell.b` cannot do without"]
    assert (
        result.findings[0].hint == 'write "b?", which is None where the quorum goes on without it'
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param("after: [b]", "6:61 Y119 `tell.after` names `b`, which `tell.quorum` goes on "
                     "without", id="order"),
        pytest.param("when: 'b.y > 0'", "6:59 Y119 `tell` rests on `b.y > 0`, but `tell.quorum` "
                     "goes on without `b`", id="a condition"),
    ],
)  # fmt: skip
def test_what_a_quorum_goes_on_without_is_not_waited_for(setting: str, expected: str) -> None:
    quorum = "quorum: {need: 1, of: [a, b]}"
    result = checked(TELL.replace("{step: tell,", f"{{step: tell, {quorum}, {setting},"),
                     steps=TELL_STEPS)  # fmt: skip
    assert expected in lines(result)
    assert result.findings[0].hint == "take `b` out of the quorum, or leave this out"
    fine = setting.replace("[b]", "[c]").replace("b.y", "c.y")
    text = TELL.replace("  tell:", "  c: {model: double, inputs: {x: x}}\n  tell:")
    text = text.replace("{step: tell,", f"{{step: tell, {quorum}, {fine},")
    found = lines(checked(text, steps=TELL_STEPS))
    assert [line for line in found if "Y119" in line] == []


def test_a_switch_does_not_wait_for_what_a_quorum_goes_on_without() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
      b: {model: double, inputs: {x: x}}
      pick: {switch: {tell: "b.y > 0", plain: else}}
      tell:
        step: tell
        inputs: {"a?": a.y, "b?": b.y}
        outputs: {text: string}
        quorum: {need: 1, of: [a, b]}
      plain: {step: tell, inputs: {a: x, b: x}, outputs: {text: string}}
    outputs: {text: pick.text}
    """
    assert lines(checked(text, steps=TELL_STEPS)) == [
        "6:25 Y119 `tell` rests on `b.y > 0`, but `tell.quorum` goes on without `b`"
    ]


@pytest.mark.parametrize(
    ("policy", "instances", "expected"),
    [
        pytest.param("timeout_ms: 900", 2, "5:59 Y134 `head.timeout_ms` is 900, but `deadline_ms` "
                     "is 500", id="more time than the pipeline has"),
        pytest.param("timeout_ms: 30, hedge_ms: 30", 2, "5:73 Y134 `head.hedge_ms` is 30, but "
                     "`timeout_ms` is 30: no call is hedged", id="a hedge after the end"),
        pytest.param("hedge_ms: 30", 1, "5:57 Y134 `head.hedge_ms`: what it calls has one "
                     "instance, so a second call waits too", id="a hedge on one instance"),
    ],
)  # fmt: skip
def test_a_policy_that_does_nothing_is_a_warning(
    policy: str, instances: int, expected: str
) -> None:
    result = checked(f"deadline_ms: 500{with_policy(policy)}", instances={"head": instances})
    assert lines(result) == [expected]
    assert [finding.severity for finding in result.findings] == [Severity.WARNING]
    assert result.graph is not None


def test_a_hedge_of_a_step_is_a_warning_unless_it_has_more_instances() -> None:
    step = "tell: {step: tell, hedge_ms: 5,"
    text = TELL.replace("tell: {step: tell,", step)
    assert [line.split()[1] for line in lines(checked(text, steps=TELL_STEPS))] == ["Y134"]
    text = text.replace(step, f"{step} instances: {{cpu: 2}},")
    assert lines(checked(text, steps=TELL_STEPS)) == []


def test_how_many_instances_a_callee_has_may_be_unknown() -> None:
    assert lines(checked(with_policy("hedge_ms: 30"))) == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param("deadline_ms: 0", "1:14 Y005 `deadline_ms`: input should be greater than 0",
                     id="no time"),
        pytest.param("fuse: [head, spel]", "1:14 Y130 `fuse` names `spel`, which is no node",
                     id="fuse an unknown node"),
        pytest.param("fuse: [head, head]", "1:14 Y130 `fuse` names `head` twice",
                     id="fuse a node with itself"),
    ],
)  # fmt: skip
def test_a_rule_of_the_pipeline_that_cannot_be_kept_is_found(setting: str, expected: str) -> None:
    assert lines(checked(f"{setting}{TEXT}")) == [expected]


@pytest.mark.parametrize("fuse", ["[head]", "always", "{a: b}"])
def test_fuse_is_a_list_of_two_or_more_nodes_or_auto(fuse: str) -> None:
    assert lines(checked(f"fuse: {fuse}{TEXT}")) == [
        "1:7 Y005 `fuse`: write `auto`, or two or more nodes: [a, b]"
    ]


def test_the_output_that_provenance_adds_has_its_name_to_itself() -> None:
    text = f"provenance: true{TEXT}"
    renamed = text.replace("score: head.score", "provenance: head.score")
    assert lines(checked(renamed)) == [
        "7:11 Y101 `provenance` is what `provenance: true` adds as an output"
    ]
    renamed = text.replace("lang: string", "provenance: string").replace(
        "text: lang", "text: provenance"
    )
    assert [line.split()[1] for line in lines(checked(renamed))] == ["Y101"]
    assert lines(checked(renamed.replace("provenance: true", ""))) == []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("after: [b]", "4:46", id="after"),
        pytest.param("when: b.y > 1", "4:44", id="when"),
        pytest.param("foreach: b.y", "4:47", id="foreach"),
    ],
)
def test_a_circle_through_a_policy_is_found_at_the_policy(policy: str, expected: str) -> None:
    text = f"""
    pipeline: demo
    inputs: {{x: fp32}}
    nodes:
      a: {{model: double, inputs: {{x: x}}, {policy}}}
      b: {{model: double, inputs: {{x: a.y}}}}
    outputs: {{y: b.y}}
    """
    circle = "Y112 nodes feed each other in a circle: a -> b -> a"
    assert f"{expected} {circle}" in lines(checked(text))
