"""`provenance`: one JSON text per row, node -> what became of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bls_graphs import Gate, InTurn, above, double, fails, node, pipeline, switch


def told(nodes: list[Any], *rows: float, outputs: Any = None, **functions: Any) -> list[Any]:
    demo = pipeline(nodes, outputs, provenance=True, **functions)
    return [json.loads(row) for row in demo.ask(*rows).rows("provenance")]


def outcomes(rows: list[Any]) -> list[dict[str, str]]:
    return [{name: entry["outcome"] for name, entry in row.items()} for row in rows]


def test_a_node_that_ran_tells_when_and_how_long() -> None:
    [row] = told([node("a", {"x": "x"}), node("b", {"x": "a.y"})], 1)
    assert list(row) == ["a", "b"]
    assert {key: type(value) for key, value in row["a"].items()} == {
        "outcome": str, "start_ms": float, "ms": float,
    }  # fmt: skip
    assert 0 <= row["a"]["start_ms"] <= row["b"]["start_ms"]
    assert row["a"]["start_ms"] + row["a"]["ms"] <= row["b"]["start_ms"] + 0.01


def test_the_version_of_a_pinned_model_is_told() -> None:
    nodes = [node("a", {"x": "x"}, model="big")]
    demo = pipeline(nodes, provenance=True, pins={"big": 7})
    [row] = demo.ask(1).rows("provenance")
    assert json.loads(row)["a"]["version"] == 7
    assert demo.plan.nodes["a"].version == 7


READ = node("read", {"all": "x", "o": "a.y?"})


def read(all: Any, o: Any = None) -> Any:
    return all if o is None else o


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        pytest.param({}, ["skipped", "ran"], id="a condition"),
        pytest.param({"on_error": 7}, ["skipped", "defaulted"], id="on_error"),
        pytest.param({"required": False}, ["skipped", "failed"], id="not required"),
    ],
)
def test_each_row_has_an_outcome_of_its_own(keys: dict[str, Any], outcome: list[str]) -> None:
    a = node("a", {"x": "x"}, when=above("x", 1), **keys)
    rows = told([a, READ], 0, 2, a=fails("no") if keys else double, read=read)
    assert [row["a"] for row in outcomes(rows)] == outcome
    assert rows[0]["a"] == {"outcome": "skipped"}


def test_why_a_value_was_defaulted_is_told_where_it_was() -> None:
    a = node("a", {"x": "x"}, on_error=7)
    [row] = told([a], 1, a=fails("full", "unavailable"))
    assert row["a"]["why"] == "unavailable"
    assert row["a"]["message"] == "node `a`: full"


def test_a_failure_that_came_along_an_edge_names_where_it_began() -> None:
    nodes = [node("bad", {"x": "x"}), node("a", {"x": "bad.y"}, on_error=7)]
    [row] = told(nodes, 1, bad=fails("no"))
    assert [entry["outcome"] for entry in row.values()] == ["failed", "defaulted"]
    assert row["a"]["message"] == row["bad"]["message"] == "node `bad`: no"


def test_a_timeout_is_told() -> None:
    gate = Gate()
    [row] = told([node("a", {"x": "x"}, timeout_ms=20, on_error=7)], 1, a=gate)
    assert (row["a"]["outcome"], row["a"]["why"]) == ("defaulted", "timeout")
    assert row["a"]["late"] is True
    assert row["a"]["ms"] >= 20
    gate.open()


def test_retries_are_counted() -> None:
    gone = fails(kind="unavailable")
    [row] = told([node("a", {"x": "x"}, retries=3)], 1, a=InTurn(gone, gone, double))
    assert (row["a"]["outcome"], row["a"]["retried"]) == ("ran", 2)


def test_a_hedge_is_told() -> None:
    slow = Gate()
    [row] = told([node("a", {"x": "x"}, hedge_ms=5)], 1, a=InTurn(slow, double))
    assert (row["a"]["outcome"], row["a"]["hedged"]) == ("ran", True)
    slow.open()


def test_a_node_that_the_answer_left_without_is_late() -> None:
    slow = Gate()
    tell = node(
        "tell", {"all": "x", "o": "a.y?", "b": "b.y?"}, quorum={"need": 1, "of": ["a", "b"]}
    )
    nodes = [node("a", {"x": "x"}), node("b", {"x": "x"}), tell]
    [row] = told(nodes, 1, b=slow, tell=lambda all, o, b=None: o)
    assert row["b"] == {"outcome": "late"}
    slow.open()


def test_of_a_switch_the_branch_that_was_taken_ran() -> None:
    first = above("x", 1)
    nodes = [
        node("a", {"x": "x"}, when=first),
        node("b", {"x": "x"}, when=["not", first]),
        switch("s", "a", "b"),
    ]
    assert outcomes(told(nodes, 2, 0)) == [
        {"a": "ran", "b": "skipped", "s": "ran"},
        {"a": "skipped", "b": "ran", "s": "ran"},
    ]


def test_nodes_that_were_made_one_are_told_by_their_own_names() -> None:
    [row] = told([node("p+q", {"x": "x"}, covers=["p", "q"])], 1)
    assert list(row) == ["p", "q"]
    assert row["p"] == row["q"]


def test_nodes_side_by_side_overlap() -> None:
    gates = {name: Gate() for name in "abc"}
    nodes = [node(name, {"x": "x"}) for name in gates]
    demo = pipeline(nodes, {n: f"{n}.y" for n in gates}, provenance=True, **gates)
    asked = demo.ask(1)
    for gate in gates.values():
        gate.await_calls()
    for gate in gates.values():
        gate.open()
    [row] = map(json.loads, asked.rows("provenance"))
    spans = [(e["start_ms"], e["start_ms"] + e["ms"]) for e in row.values()]
    assert max(begin for begin, _ in spans) < min(end for _, end in spans)


def test_provenance_that_is_not_asked_for_is_not_told() -> None:
    demo = pipeline([node("a", {"x": "x"})], provenance=True)
    assert list(demo.ask(1, wanted=["y"]).outputs()) == ["y"]


def test_provenance_rests_on_all_that_the_pipeline_shows() -> None:
    nodes = [node("a", {"x": "x"}), node("b", {"x": "x"})]
    demo = pipeline(nodes, {"p": "a.y", "q": "b.y"}, provenance=True)
    outputs = demo.ask(1, wanted=["provenance"]).outputs()
    assert list(outputs) == ["provenance"]
    assert outcomes([json.loads(outputs["provenance"][0, 0])]) == [{"a": "ran", "b": "ran"}]


def test_a_pipeline_that_does_not_declare_it_has_none() -> None:
    demo = pipeline([node("a", {"x": "x"})])
    assert list(demo.ask(1, wanted=["y", "provenance"]).outputs()) == ["y"]
