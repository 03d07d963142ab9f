"""Pipelines as the simulation has them: nested ones, both forms, and ensembles of the user's."""

from __future__ import annotations

from pipelines import graph_of, signature, source

from mmctl.compiler import Compiled, compile_pipeline
from mmctl.loadtest.simulate import Node
from mmctl.tensors import Signature
from mmctl.trials.tune_nodes import Pipelines, nodes_of, with_counts
from mmctl.triton.config import EnsembleStep

ONE = signature({"x": "fp32"}, {"y": "fp32"})


def compiled(name: str, nodes: str, known: dict[str, Signature]) -> Compiled:
    made = source(f"pipeline: {name}\ninputs: {{x: fp32}}\nnodes:\n{nodes}", name=name)
    found = compile_pipeline(graph_of(made, known), made)
    known[name] = found.signature
    return found


def test_a_model_is_its_own_only_node() -> None:
    assert nodes_of("a", Pipelines({}, {})) == (Node("a", "a"),)


def test_a_pipeline_that_is_called_is_part_of_its_callers() -> None:
    known: dict[str, Signature] = dict.fromkeys(("a", "b"), ONE)
    inner = compiled(
        "inner",
        "  one: {model: a, inputs: {x: x}}\n  two: {model: b, inputs: {x: one.y}}\n"
        "outputs: {y: two.y}\n",
        known,
    )
    outer = compiled(
        "outer",
        "  first: {model: a, inputs: {x: x}}\n"
        "  deep: {model: inner, inputs: {x: first.y}, timeout_ms: 100, max_in_flight: 3}\n"
        "  side: {model: b, inputs: {x: first.y}, max_in_flight: 2}\n"
        "  last: {model: b, inputs: {x: deep.y}, after: [side]}\n"
        "outputs: {y: last.y}\n",
        known,
    )
    assert (inner.form, outer.form) == ("ensemble", "bls")
    nodes = {n.name: n for n in nodes_of("outer", Pipelines({"inner": inner, "outer": outer}, {}))}
    assert {name: (node.model, set(node.after)) for name, node in nodes.items()} == {
        "first": ("a", set()),
        "deep/one": ("a", {"first"}),
        "deep/two": ("b", {"deep/one"}),
        "side": ("b", {"first"}),
        "last": ("b", {"deep/two", "side"}),
    }
    assert nodes["side"].in_flight == 2
    assert nodes["deep/one"].in_flight is None


def test_steps_of_an_ensemble_are_joined_by_their_tensors() -> None:
    steps = (
        EnsembleStep("late", {"x": "mid"}, {"y": "y"}),
        EnsembleStep("early", {"x": "x"}, {"y": "mid"}),
    )
    assert nodes_of("own", Pipelines({}, {"own": steps})) == (
        Node("1_early", "early"),
        Node("0_late", "late", ("1_early",)),
    )


def test_what_was_counted_is_shared_by_those_that_call_a_model() -> None:
    """A branch that half of the requests take, and a fan-out into six rows for two callers."""
    nodes = [Node("a", "a"), Node("b", "b"), Node("c", "c"), Node("d", "c")]
    counted = with_counts(nodes, {"a": 1.0, "b": 0.5, "c": 6.0})
    assert [(node.rows, node.share) for node in counted] == [(1, 1), (1, 0.5), (3, 1), (3, 1)]
