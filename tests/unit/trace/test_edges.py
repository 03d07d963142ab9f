"""Which of the models that a pipeline calls waits for which."""

from __future__ import annotations

from typing import Any

from mmctl.trace.edges import waits_of_ensemble, waits_of_plan
from mmctl.triton.config import EnsembleStep


def test_the_steps_of_an_ensemble_wait_for_who_makes_what_they_read() -> None:
    steps = [
        EnsembleStep("join", {"a": "left", "b": "right", "t": "TEXT"}, {"y": "OUT"}),
        EnsembleStep("one", {"x": "TEXT"}, {"y": "left"}),
        EnsembleStep("two", {"x": "left"}, {"y": "right"}),
    ]
    assert waits_of_ensemble(steps) == {
        "join": {"one", "two"},
        "one": frozenset(),
        "two": {"one"},
    }


def node(name: str, *sources: str, **more: Any) -> dict[str, Any]:
    inputs = [{"name": "x", "node": source, "tensor": "y"} for source in sources]
    return {"name": name, "model": f"p__{name}", "inputs": inputs, "outputs": [], **more}


def test_nodes_of_a_plan_wait_for_all_that_they_look_at() -> None:
    plan = {
        "nodes": [
            node("a", ""),
            node("b", "", when=["and", [">", ["ref", "a", "y", [0]], ["value", 0.5]]]),
            node("c", "", after=["b"]),
            node("d", "a", "b", quorum={"need": 1, "of": ["a", "b"]}),
        ]
    }
    assert waits_of_plan(plan) == {
        "p__a": frozenset(),
        "p__b": {"p__a"},
        "p__c": {"p__b"},
        "p__d": {"p__a", "p__b"},
    }


def test_who_waits_for_a_switch_waits_for_its_branches() -> None:
    switch = {"name": "s", "branches": ["a", "b"], "inputs": [], "outputs": []}
    plan = {"nodes": [node("a", ""), node("b", ""), switch, node("c", "s")]}
    assert waits_of_plan(plan)["p__c"] == {"p__a", "p__b"}


def test_nodes_that_share_a_model_do_not_wait_for_it() -> None:
    """By model, nobody can tell the two apart."""
    plan = {"nodes": [node("a", "", model="m"), node("b", "a", model="m")]}
    assert waits_of_plan(plan) == {"m": frozenset()}
