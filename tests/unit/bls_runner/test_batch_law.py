"""The batch law: a batch is answered as its rows would be alone, whatever the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from bls_calls import NodeError
from bls_graphs import (
    ABSENT,
    Failed,
    Pipeline,
    above,
    data,
    flat,
    node,
    ref,
    reference,
    switch,
)
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(-3, 3).map(float)


def total(number: int) -> Callable[..., float]:
    """What a node gives for one row; which inputs there are makes a difference."""
    return lambda **inputs: (
        number + sum((index + 2) * inputs[name] for index, name in enumerate(sorted(inputs)))
    )


def fails(**_inputs: float) -> float:
    raise NodeError("no")


def by_row(function: Callable[..., float]) -> Callable[..., Any]:
    def model(**inputs: Any) -> Any:
        shape = inputs["base"].shape
        rows = [
            {k: float(array.flat[row]) for k, array in inputs.items()} for row in range(shape[0])
        ]
        return np.array([function(**row) for row in rows], np.float32).reshape(shape)

    return model


@st.composite
def conditions(draw: Any, wires: list[str], depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["above", "compare", "and", "or", "not"] if depth else ["above"]))
    if kind == "above":
        return above(draw(st.sampled_from(wires)), draw(NUMBERS))
    if kind == "compare":
        operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">="]))
        return [operator, ref(draw(st.sampled_from(wires))), ref(draw(st.sampled_from(wires)))]
    parts = draw(st.integers(2, 3)) if kind != "not" else 1
    return [kind, *(draw(conditions(wires, depth - 1)) for _ in range(parts))]


@st.composite
def graphs(draw: Any) -> tuple[dict[str, Any], dict[str, Callable[..., float]]]:
    nodes: list[Any] = []
    functions: dict[str, Callable[..., float]] = {}
    wires = ["x", "z"]

    def add(entry: Any, *, calls: bool = True) -> None:
        if draw(st.integers(0, 3)) == 0:
            entry["on_error"] = True
            entry["outputs"] = [{**entry["outputs"][0], "default": draw(NUMBERS)}]
        elif draw(st.integers(0, 4)) == 0:
            entry["required"] = False
        nodes.append(entry)
        wires.append(f"{entry['name']}.y")
        if calls:
            often = draw(st.integers(0, 3)) == 0
            functions[entry["name"]] = fails if often else total(len(nodes))

    def called(name: str, when: Any) -> Any:
        chosen = draw(st.lists(st.sampled_from(wires), min_size=1, max_size=3, unique=True))
        inputs = {"base": "x"}
        for index, wire in enumerate(chosen):
            optional = "?" if "." in wire and draw(st.booleans()) else ""
            inputs[f"i{index}"] = wire + optional
        keys = {"when": when} if when else {}
        earlier = [n["name"] for n in nodes]
        if earlier and draw(st.integers(0, 4)) == 0:
            keys["after"] = [draw(st.sampled_from(earlier))]
        return node(name, inputs, max_batch=draw(st.sampled_from([0, 1, 2, 8])), **keys)

    for number in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 3)) == 0:
            first = draw(conditions(wires))
            second = draw(st.sampled_from(["else", "condition"]))
            own = [] if second == "else" else [draw(conditions(list(wires)))]
            add(called(f"p{number}", first))
            before = [["not", first], *own]
            add(called(f"q{number}", ["and", *before] if len(before) > 1 else before[0]))
            add(switch(f"s{number}", f"p{number}", f"q{number}"), calls=False)
        else:
            add(called(f"n{number}", draw(st.none() | conditions(wires))))
    shown = draw(st.lists(st.sampled_from(wires[2:]), min_size=1, max_size=2, unique=True))
    inputs = [{"name": name, "dtype": "fp32", "dims": []} for name in ("x", "z")]
    plan = data(nodes, {f"o{i}": wire for i, wire in enumerate(shown)}, inputs=inputs)
    return plan, functions


def answer(demo: Pipeline, rows: list[tuple[float, float]]) -> Any:
    inputs = {
        name: np.array([[row[index]] for row in rows], np.float32)
        for index, name in enumerate(("x", "z"))
    }
    return demo.ask(**inputs).wait()


@given(graphs(), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_a_batch_is_answered_as_its_rows_alone(
    graph: tuple[dict[str, Any], dict[str, Any]], rows: list[tuple[float, float]]
) -> None:
    """Each row as the language says, one node after the other; a row without a value, or that
    failed, leaves the whole batch without an answer.
    """
    plan, functions = graph
    demo = Pipeline(plan, **{name: by_row(function) for name, function in functions.items()})
    alone = [reference(plan, functions, dict(zip("xz", row, strict=True))) for row in rows]
    got = answer(demo, rows)
    if any(isinstance(state, Failed) for state in alone):
        # Which of several errors comes first is nobody's promise.
        assert str(got) in {f"node `{name}`: no" for name, f in functions.items() if f is fails}
    elif ABSENT in alone:
        assert str(got).endswith("has no value on some rows")
    else:
        assert not isinstance(got, NodeError), got
        for name, array in got.items():
            assert flat(array) == [np.float32(row[name]) for row in alone]
