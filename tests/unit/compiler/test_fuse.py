"""Which steps become one model, and where the wires of the graph lead then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import graph_of, source

from mmctl.compiler.ensemble import to_ensemble
from mmctl.compiler.fuse import fuse_steps
from mmctl.pipeline.graph import (
    Condition,
    FusedSteps,
    Graph,
    Merge,
    Node,
    Policy,
    Quorum,
    Rules,
    StepCall,
    Wire,
)

GIVES = {"step": "y", "model": "y", "cheap": "passed", "x": ""}


def graph(nodes: Mapping[str, str], outputs: str, rules: Rules | None = None) -> Graph:
    """Nodes as `a: "step x, m"`: what runs, and what feeds it; `x` is the pipeline's input.

    `cheap` is a ready-made step; braces after `step` hold settings.
    """
    kinds = {name: text.split()[0].split("{")[0] for name, text in nodes.items()}
    wires = {"x": "x", **{name: f"{name}.{GIVES[kind]}" for name, kind in kinds.items()}}
    lines = [f"  {name}: {{{_node(kinds[name], text, wires)}}}" for name, text in nodes.items()]
    shown = ", ".join(f"out_{name}: {wires[name]}" for name in outputs.split())
    text = "\n".join(["pipeline: demo", "inputs: {x: fp32}", "nodes:", *lines])
    steps = "def f(**inputs):\n    return {'y': inputs}\n"
    made = graph_of(source(f"{text}\noutputs: {{{shown}}}\n", steps=steps))
    return replace(made, rules=rules) if rules else made


def _node(kind: str, text: str, wires: Mapping[str, str]) -> str:
    head, _, fed = text.partition(" ") if "}" not in text else text.rpartition("} ")
    feeds = [wires[name] for name in fed.split(", ")]
    if kind == "model":
        return f"model: double, inputs: {{x: {feeds[0]}}}"
    if kind == "cheap":
        return f"step: {{use: threshold, at: 0.5}}, inputs: {{score: {feeds[0]}}}"
    settings = f", {head.partition('{')[2]}" if "{" in head else ""
    inputs = ", ".join(f"i{index}: {wire}" for index, wire in enumerate(feeds))
    return f"step: f, inputs: {{{inputs}}}, outputs: {{y: fp32}}{settings}"


def groups(made: Graph) -> set[str]:
    """Nodes that stand for several, their members with a + between them."""
    return {"+".join(n.covers) for n in fuse_steps(made).nodes if len(n.covers) > 1}


CASES: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "a chain": ({"a": "step x", "b": "step a", "c": "step b"}, "c", {"a+b+c"}),
    "branches that meet": (
        {"a": "step x", "b": "step x", "c": "step x", "d": "step a, b, c"}, "d", {"a+b+c+d"},
    ),
    "around a model": ({"a": "step x", "m": "model a", "b": "step m"}, "b", set()),
    "on both sides of a model": (
        {"a": "step x", "b": "step a", "m": "model b", "c": "step m", "d": "step c"}, "d",
        {"a+b", "c+d"},
    ),
    "what a model reads too": ({"a": "step x", "m": "model a", "b": "step a"}, "m b", set()),
    "what two read that never meet": ({"a": "step x", "b": "step a", "c": "step a"}, "b c", set()),
    "what two read that meet": (
        {"a": "step x", "b": "step a", "c": "step a", "d": "step b, c"}, "d", {"a+b+c+d"},
    ),
    "what is shown too": ({"a": "step x", "b": "step a"}, "a b", {"a+b"}),
    "a step that would wait for a model": (
        {"a": "step x", "m": "model x", "b": "step a, m"}, "b", set(),
    ),
    "a cheap step, which may wait": (
        {"a": "cheap x", "m": "model x", "b": "step a, m"}, "b", {"a+b"},
    ),
    "a cheap step behind one that would wait": (
        {"a": "step x", "t": "cheap a", "m": "model x", "b": "step t, m"}, "b", {"t+b"},
    ),
    "two steps behind the same model": (
        {"m": "model x", "a": "step m", "b": "step m", "c": "step a, b"}, "c", {"a+b+c"},
    ),
    "a step that would wait for another group": (
        {"p": "step x", "q": "step p", "a": "step x", "b": "step a, p"}, "q b", set(),
    ),
    "cheap steps that nothing reads": ({"a": "cheap x", "b": "cheap x"}, "a b", set()),
    "a step with instances": (
        {"a": "step{instances: {cpu: 2}} x", "b": "step a"}, "b", set(),
    ),
    "a step with batching": (
        {"a": "step x", "b": "step{batching: {max_delay_ms: 1}} a"}, "b", set(),
    ),
    "a step with its own size of batches": (
        {"a": "step{batching: {max_batch: 8}} x", "b": "step a"}, "b", set(),
    ),
    "a step of one row": ({"a": "step{batch: false} x", "b": "step a"}, "b", set()),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "outputs", "expected"), CASES.values(), ids=CASES.keys())
def test_steps_that_only_feed_each_other_become_one(
    nodes: dict[str, str], outputs: str, expected: set[str]
) -> None:
    assert groups(graph(nodes, outputs)) == expected


def with_policy(made: Graph, name: str, policy: Policy) -> Graph:
    nodes = [replace(n, policy=policy) if n.name == name else n for n in made.nodes]
    return replace(made, nodes=tuple(nodes))


WHEN = Condition("x > 0", [">", ["ref", "", "x", []], ["value", 0]], (Wire("", "x"),))
CHAIN = {"m": "model x", "a": "step m", "b": "step a", "n": "model b"}


@pytest.mark.parametrize(
    ("outputs", "name", "policy", "expected"),
    [
        pytest.param("n", "a", Policy(timeout_ms=5), set(), id="a policy on the first"),
        pytest.param("n", "b", Policy(required=False), set(), id="a policy on the last"),
        pytest.param("n", "n", Policy(after=("a",)), set(), id="a step that is waited for"),
        pytest.param("n", "n", Policy(on_error={"y": 0}), {"a+b"},
                     id="a default behind the group"),
        pytest.param("a n", "n", Policy(on_error={"y": 0}), set(),
                     id="a default behind the group, and a step that is shown"),
        pytest.param("a n", "n", Policy(timeout_ms=5), {"a+b"},
                     id="a step that is shown, and nothing behind that absorbs a failure"),
        pytest.param("n", "m", Policy(when=WHEN), {"a+b"}, id="rows skipped before the group"),
        pytest.param("a n", "m", Policy(when=WHEN), set(),
                     id="rows skipped before the group, and a step that is shown"),
        pytest.param("n", "n", Policy(when=replace(WHEN, wires=(Wire("a", "y"),))), set(),
                     id="a step that a condition reads"),
    ],
)  # fmt: skip
def test_policies_keep_their_meaning(
    outputs: str, name: str, policy: Policy, expected: set[str]
) -> None:
    assert groups(with_policy(graph(CHAIN, outputs), name, policy)) == expected


def test_an_input_that_may_be_left_out_keeps_its_step_apart_where_rows_are_skipped() -> None:
    made = graph({"m": "model x", "a": "step m", "b": "step a, x"}, "b")
    *others, last = made.nodes
    takes = tuple(replace(spec, optional=spec.name == "i0") for spec in last.takes)
    optional = replace(made, nodes=(*others, replace(last, takes=takes)))
    skipping = with_policy(optional, "m", Policy(when=WHEN))
    assert groups(optional) == {"a+b"}
    assert groups(skipping) == set()
    with pytest.raises(ValueError, match="rows that `m` skips"):
        fuse_steps(replace(skipping, rules=Rules(fuse=("a", "b"))))


def test_steps_that_a_quorum_names_stay_apart() -> None:
    made = graph({"a": "step x", "b": "step x", "c": "step a, b"}, "c")
    assert groups(with_policy(made, "c", Policy(quorum=Quorum(1, ("a", "b"))))) == set()


def test_steps_with_other_requirements_stay_apart() -> None:
    made = graph({"a": "step x", "b": "step a"}, "b")
    first, last = made.nodes
    assert isinstance(first.runs, StepCall)
    other = replace(first, runs=replace(first.runs, requirements="regex\n"))
    assert groups(replace(made, nodes=(other, last))) == set()


def test_steps_with_other_files_of_the_same_name_stay_apart() -> None:
    made = graph({"a": "step x", "b": "step a"}, "b")
    first, last = made.nodes
    assert isinstance(first.runs, StepCall)
    other = replace(first, runs=replace(first.runs, sources={"steps.py": "other"}))
    assert groups(replace(made, nodes=(other, last))) == set()


ASKED: dict[str, tuple[dict[str, str], str, Rules, set[str]]] = {
    "steps that wait for other things": (
        {"a": "step x", "m": "model x", "b": "step a, m"}, "b", Rules(fuse=("b", "a")), {"a+b"},
    ),
    "steps that do not feed each other": (
        {"a": "step x", "b": "step x", "m": "model a"}, "m b", Rules(fuse=("a", "b")), {"a+b"},
    ),
    "what only they read comes along": (
        {"p": "step x", "a": "step p", "b": "step p"}, "a b", Rules(fuse=("a", "b")), {"p+a+b"},
    ),
    "models are for others to join": (
        {"m": "model x", "a": "step m"}, "a", Rules(fuse=("m", "a")), set(),
    ),
    "all steps for the form": (
        {"a": "cheap x", "b": "step x"}, "a b", Rules(form="fused"), {"a+b"},
    ),
    "no form that cannot be": (
        {"a": "cheap x", "m": "model x"}, "a m", Rules(form="fused"), set(),
    ),
    "nothing on its own where another form is pinned": (
        {"a": "step x", "b": "step a"}, "b", Rules(form="ensemble"), set(),
    ),
    "only what is named where another form is pinned": (
        {"p": "step x", "a": "step p", "b": "step a"}, "b",
        Rules(form="bls", fuse=("a", "b")), {"a+b"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "outputs", "rules", "expected"), ASKED.values(), ids=ASKED)
def test_steps_become_one_because_somebody_says_so(
    nodes: dict[str, str], outputs: str, rules: Rules, expected: set[str]
) -> None:
    assert groups(graph(nodes, outputs, rules)) == expected


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        pytest.param({"a": "step x", "m": "model a", "b": "step m"},
                     "`a` and `b` cannot be one model: `m` stands between them", id="a model"),
        pytest.param({"a": "step x", "m": "model a", "c": "step m", "b": "step a, c"},
                     "`a` and `b` cannot be one model: `m` stands between them", id="two nodes"),
        pytest.param({"a": "step x", "b": "step{instances: {cpu: 2}} a"},
                     "`b` cannot be fused: it has `instances`", id="instances"),
        pytest.param({"a": "step{batch: false} x", "b": "step a"},
                     "`a` cannot be fused: it has `batch: false`", id="one row"),
    ],
)  # fmt: skip
def test_steps_that_cannot_be_one_are_an_error(nodes: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match="^" + problem + "$"):
        fuse_steps(graph(nodes, "b", Rules(fuse=("a", "b"))))


def test_a_switch_is_no_step() -> None:
    made = graph({"a": "step x", "b": "step x", "c": "step a"}, "b c")
    switch = Node("pick", Merge(("a", "b")), {}, (), made.node("a").gives)
    made = replace(made, nodes=(*made.nodes, switch), rules=Rules(fuse=("pick", "c")))
    with pytest.raises(ValueError, match="`pick` cannot be fused: it is no step"):
        fuse_steps(made)


def test_a_default_that_would_hide_other_failures_is_an_error() -> None:
    made = graph({"a": "step x", "b": "step x", "m": "model a"}, "m b", Rules(fuse=("a", "b")))
    made = with_policy(made, "m", Policy(on_error={"y": 0}))
    with pytest.raises(ValueError, match="`a` cannot be fused: `m` would take other failures"):
        fuse_steps(made)


def test_wires_lead_to_the_node_that_a_step_is_in() -> None:
    nodes = {"m": "model x", "a": "step m, x", "b": "step a", "n": "model a"}
    made = graph(nodes, "a b n", Rules(fuse=("a", "b")))
    reads_a = Condition(
        "a.y > 0 and not n.y == 'ref'",
        ["and", [">", ["ref", "a", "y", [0]], ["value", 0]],
         ["not", ["==", ["ref", "b", "y", []], ["value", "ref"]]]],
        (Wire("a", "y"), Wire("b", "y")),
    )  # fmt: skip
    fused = fuse_steps(with_policy(made, "n", Policy(when=reads_a, foreach=Wire("a", "y"))))
    assert [node.name for node in fused.nodes] == ["m", "b", "n"]
    node, last = fused.node("b"), fused.node("n")
    assert node.inputs == {"m__y": Wire("m", "y"), "x": Wire("", "x")}
    assert [spec.name for spec in node.takes] == ["m__y", "x"]
    assert [spec.name for spec in node.gives] == ["a__y", "y"]
    assert isinstance(node.runs, FusedSteps)
    assert node.runs.shows == {"a__y": Wire("a", "y"), "y": Wire("b", "y")}
    first, second = node.runs.members
    assert first.inputs == {"i0": Wire("", "m__y"), "i1": Wire("", "x")}
    assert second.inputs == {"i0": Wire("a", "y")}
    moved = Wire("b", "a__y")
    assert fused.outputs == {"out_a": moved, "out_b": Wire("b", "y"), "out_n": Wire("n", "y")}
    assert last.inputs == {"x": moved}
    assert last.policy.foreach == moved
    assert last.policy.when is not None
    assert last.policy.when.wires == (moved, Wire("b", "y"))
    assert last.policy.when.tree == [
        "and", [">", ["ref", "b", "a__y", [0]], ["value", 0]],
        ["not", ["==", ["ref", "b", "y", []], ["value", "ref"]]],
    ]  # fmt: skip


def test_a_fused_node_compiles_to_one_model_with_the_files_of_all() -> None:
    made = graph({"a": "step x", "t": "cheap a", "b": "step a, t"}, "t b")
    model, pipeline = to_ensemble(fuse_steps(made), origin="pipeline.yaml")
    assert model.name == "demo__b"
    assert {"steps.py", "ready_threshold.py"} <= set(model.files)
    assert [spec.name for spec in model.signature.outputs] == ["t__passed", "y"]
    [step] = pipeline.configs["config.pbtxt"].steps
    assert step.outputs == {"t__passed": "out_t", "y": "out_b"}


@st.composite
def anything(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    """Nodes that all reach an output."""
    nodes: dict[str, Any] = {}
    unread: set[str] = set()
    for index in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["step", "step", "step", "model", "cheap"]))
        numbers = ["x", *(n for n, text in nodes.items() if not text.startswith("cheap"))]
        known = st.sampled_from(["x", *nodes] if kind == "step" else numbers)
        fed = draw(st.lists(known, min_size=1, max_size=3 if kind == "step" else 1, unique=True))
        nodes[f"n{index}"] = f"{kind} {', '.join(fed)}"
        unread = (unread - set(fed)) | {f"n{index}"}
    more = draw(st.sets(st.sampled_from(sorted(nodes)), max_size=2))
    return nodes, " ".join(sorted(unread | more))


@settings(deadline=None)
@given(anything())
def test_a_fused_graph_is_the_same_graph(case: tuple[dict[str, str], str]) -> None:
    made = graph(*case)
    fused = fuse_steps(made)
    assert sorted(n for node in fused.nodes for n in node.covers) == sorted(case[0])
    done: set[str] = set()
    for node in fused.nodes:
        assert set(node.needs()) <= done
        done.add(node.name)
    assert fused.output_specs() == made.output_specs()
    for node in fused.nodes:
        assert set(node.inputs) == {spec.name for spec in node.takes}
        for spec in node.takes:
            assert fused.spec(node.inputs[spec.name]).type.feeds(spec.type)
    assert fuse_steps(fused).nodes == fused.nodes


@settings(deadline=None)
@given(anything())
def test_no_step_but_a_cheap_one_waits_longer_than_before(case: tuple[dict[str, str], str]) -> None:
    made = graph(*case)
    before: dict[str, set[str]] = {}
    for node in made.nodes:
        before[node.name] = {n for need in node.needs() for n in (need, *before[need])}
    for node in fuse_steps(made).nodes:
        inside = set(node.covers)
        waits_for = {name for member in inside for name in before[member]} - inside
        for member in inside:
            assert case[0][member].startswith("cheap") or before[member] - inside == waits_for
