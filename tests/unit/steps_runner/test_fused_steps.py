"""Several steps in one model answer as they would as models of their own, also when they fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mmctl.compiler.regroup import regrouped
from mmctl.compiler.shipped.item_lists import fits
from mmctl.compiler.shipped.step_model import StepError, Steps
from mmctl.compiler.steps import StepModel, step_model
from mmctl.pipeline.graph import FusedSteps, Graph, Member, Node, StepCall, Wire
from mmctl.tensors import TensorSpec, TensorType, parse_type

Function = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """A step that the graphs below are made of. Inputs ending in `?` are optional."""

    function: Function
    takes: Mapping[str, str]
    gives: Mapping[str, str]
    options: Any = None


def shout(text: Any) -> dict[str, Any]:
    if any("!" in row for row in text):
        raise ValueError("it is loud already")
    return {"text": [f"{row}!" for row in text]}


def read_twice(text: Any) -> dict[str, Any]:
    """Numpy's own text, and a type that only looks like `str`."""
    return {"same": np.array(list(text)), "other": [np.str_(row) for row in text]}


def raw(text: Any) -> dict[str, Any]:
    return {"raw": [row.encode() + b"\0" for row in text]}


def backwards(raw: Any) -> dict[str, Any]:
    """What was UTF-8 may be none."""
    return {"raw": np.array([*(row[::-1] for row in raw), None], object)[:-1]}


def length(text: Any) -> dict[str, Any]:
    assert all(type(row) is str for row in text)
    return {"size": np.array([len(row) for row in text])}


def wide(x: Any) -> dict[str, Any]:
    """In another order of memory, and wider than fp32."""
    return {"both": np.array([x, -x.astype(np.float64)]).T}


def narrow(pair: Any) -> dict[str, Any]:
    assert pair.flags.c_contiguous, "sums differ in the last bit in another order"
    return {"x": pair[:, 0] + pair.sum(axis=1)}


def free(pair: Any) -> dict[str, Any]:
    """Free axes, which the next may not take."""
    return {"one": pair[:, :1], "two": pair}


def spoil(x: Any) -> dict[str, Any]:
    x += 1
    return {"x": x}


TABLE = np.zeros(99, np.float32)


def alias(x: Any) -> dict[str, Any]:
    """Gives what it was given, and what it keeps."""
    return {"x": x, "again": x[:], "kept": TABLE[: len(x)]}


def whole(x: Any) -> dict[str, Any]:
    if np.isnan(x).any():
        raise SystemExit("no number")
    return {"n": x.astype(np.int64)}


def odd(n: Any) -> dict[str, Any]:
    """Is of another type than it says for some."""
    return {"x": n.astype(np.float32) if (n % 2 == 0).all() else n}


def perhaps(text: Any, x: Any) -> dict[str, Any]:
    return {"text": text if x is None else [f"{t}{v}" for t, v in zip(text, x, strict=True)]}


def letters(text: Any) -> dict[str, Any]:
    codes = [[np.frombuffer(c.encode(), np.uint8) for c in row] for row in text]
    return {"letters": [list(row) for row in text], "codes": codes}


def count(items: Any) -> dict[str, Any]:
    assert all(type(item) is str for row in items for item in row)
    return {"n": np.array([len(row) for row in items], np.int32)}


def doubled(codes: Any) -> dict[str, Any]:
    for row in codes:
        for item in row:
            item[:] = 0  # refused: the items of a list are not the step's own
    return {"codes": codes}


def joined(codes: Any) -> dict[str, Any]:
    return {"raw": [b"".join(item.tobytes() for item in row) for row in codes]}


KINDS = {
    "shout": Kind(shout, {"text": "string"}, {"text": "string"}),
    "read_twice": Kind(read_twice, {"text": "string"}, {"same": "string", "other": "string"}),
    "raw": Kind(raw, {"text": "string"}, {"raw": "bytes"}),
    "backwards": Kind(backwards, {"raw": "bytes"}, {"raw": "bytes"}),
    "length": Kind(length, {"text": "string"}, {"size": "int32"}),
    "wide": Kind(wide, {"x": "fp32"}, {"both": "fp32[2]"}),
    "narrow": Kind(narrow, {"pair": "fp32[2]"}, {"x": "fp32"}, options={}),
    "free": Kind(free, {"pair": "fp32[2]"}, {"one": "fp32[-1]", "two": "fp32[-1]"}),
    "spoil": Kind(spoil, {"x": "fp32"}, {"x": "fp32"}),
    "spoil_pairs": Kind(spoil, {"x": "fp32[2]"}, {"x": "fp32[2]"}),
    "alias": Kind(alias, {"x": "fp32"}, {"x": "fp32", "again": "fp32", "kept": "fp32"}),
    "whole": Kind(whole, {"x": "fp32"}, {"n": "int32"}),
    "odd": Kind(odd, {"n": "int32"}, {"x": "fp32"}),
    "perhaps": Kind(perhaps, {"text": "string", "x?": "fp32"}, {"text": "string"}),
    "one_each": Kind(spoil, {"x": "fp32[1]"}, {"x": "fp32[1]"}),
    "letters": Kind(letters, {"text": "string"},
                    {"codes": "uint8[*,-1]", "letters": "string[*]"}),
    "count": Kind(count, {"items": "string[*]"}, {"n": "int32"}),
    "doubled": Kind(doubled, {"codes": "uint8[*,-1]"}, {"codes": "uint8[*,-1]"}),
    "joined": Kind(joined, {"codes": "uint8[*,1]"}, {"raw": "bytes"}),
}  # fmt: skip

INPUTS = tuple(
    TensorSpec(name, parse_type(kind))
    for name, kind in {"text": "string", "file": "bytes", "x": "fp32", "pair": "fp32[2]"}.items()
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, Function]]:
    """Steps in a row, each fed by anything that fits from before it; all their outputs shown."""
    known: dict[Wire, TensorType] = {Wire("", spec.name): spec.type for spec in INPUTS}
    nodes, functions = [], {}
    for index in range(draw(st.integers(1, 6))):
        kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        takes = tuple(
            TensorSpec(name.rstrip("?"), parse_type(text), name.endswith("?"))
            for name, text in kind.takes.items()
        )
        fitting = [[w for w, given in known.items() if given.feeds(t.type)] for t in takes]
        if not all(fitting):
            continue
        inputs = {t.name: draw(st.sampled_from(f)) for t, f in zip(takes, fitting, strict=True)}
        gives = tuple(TensorSpec(name, parse_type(text)) for name, text in kind.gives.items())
        name = f"s{index}"
        runs = StepCall("steps" if kind.options is None else "ready_join", "f", kind.options)
        nodes.append(Node(name, runs, inputs, takes, gives))
        functions[name] = kind.function
        known |= {Wire(name, spec.name): spec.type for spec in gives}
    outputs = {str(wire): wire for wire in known if wire.node}
    return Graph("demo", INPUTS, outputs, tuple(nodes), 8), functions


TEXTS = st.sampled_from(["", "a", "ab!", "你好", "é\0", "no"])
FILES = st.sampled_from([b"", b"a\0", b"\xff", "ö".encode()])
NUMBERS = st.sampled_from([0.0, 1.0, 2.5, -3.0, 4e9, float("nan")])


def column(rows: list[Any], kind: Any = object) -> Any:
    return np.array([*rows, None], object)[:-1, None].astype(kind)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Arrays as Triton sends them."""
    size = draw(st.integers(1, 3))
    rows = st.tuples(*[TEXTS, FILES, NUMBERS, st.tuples(NUMBERS, NUMBERS)])
    texts, files, numbers, pairs = zip(*(draw(rows) for _ in range(size)), strict=True)
    return {
        "text": column([text.encode() for text in texts]),
        "file": column(list(files)),
        "x": column(list(numbers), np.float32),
        "pair": np.array(pairs, np.float32),
    }


def runner(node: Node, functions: Mapping[str, Function]) -> Steps:
    """The model of a node as it is compiled."""
    assert isinstance(node.runs, StepCall | FusedSteps)
    model = StepModel("m", node.name, node.runs, node.takes, node.gives)
    files = step_model(model, pipeline_max_batch=8, origin="").files
    plan = json.loads(files["step.json"])
    return Steps(plan, [functions[entry["step"]] for entry in plan["steps"]])


SHAPE = "Triton refuses the shape"


def taken(spec: TensorSpec, array: Any) -> bool:
    """What Triton checks before a model gets it."""
    return spec.type.items or fits(array.shape[1:], spec.type.triton_dims)


def answers(graph: Graph, functions: Mapping[str, Function], sent: list[Any]) -> list[Any]:
    """What an ensemble of the nodes answers: outputs, or the first error and whose it is.

    Each model gets arrays of its own, requests that have failed go no further.
    """
    held: list[Any] = [{Wire("", name): array for name, array in each.items()} for each in sent]
    for node in graph.nodes:
        alive = [index for index, values in enumerate(held) if isinstance(values, dict)]
        for index in alive:
            if not all(taken(spec, held[index][node.inputs[spec.name]]) for spec in node.takes):
                held[index] = f"{node.name}: {SHAPE}"
        alive = [index for index in alive if isinstance(held[index], dict)]
        steps = runner(node, functions)
        wires = node.inputs.items()
        asked = [{key: held[i][wire].copy() for key, wire in wires} for i in alive]
        for index, outcome in zip(alive, steps.run(asked), strict=True):
            if isinstance(outcome, StepError):
                held[index] = f"{outcome.step}: {outcome}"
                continue
            held[index] |= {
                Wire(node.name, name): tensor.sent(outcome[name], batched=True)
                for name, _, tensor in steps.outputs
            }
    return [
        v if isinstance(v, str) else {name: v[wire] for name, wire in graph.outputs.items()}
        for v in held
    ]


def shown(answer: Any) -> Any:
    """Comparable to the last bit."""
    if isinstance(answer, str):
        return answer
    return {
        name: (a.dtype.str, a.shape, a.tolist() if a.dtype == object else a.tobytes())
        for name, a in answer.items()
    }


def agree(together: Any, apart: Any) -> bool:
    """Inside a model the runner checks shapes, not Triton: at another moment, in other words."""
    if isinstance(apart, str) and isinstance(together, str) and apart.endswith(SHAPE):
        return together.split(":")[0] == apart.split(":")[0]
    return bool(together == apart)


def as_one(graph: Graph) -> Graph:
    members = []
    for node in graph.nodes:
        assert isinstance(node.runs, StepCall)
        members.append(Member(node.name, node.runs, node.inputs, node.takes, node.gives))
    return regrouped(graph, [tuple(members)])


@settings(max_examples=300, deadline=None)
@given(graphs(), st.lists(requests(), min_size=1, max_size=3))
def test_fused_steps_answer_as_steps_of_their_own(
    made: tuple[Graph, dict[str, Function]], sent: list[dict[str, Any]]
) -> None:
    graph, functions = made
    if not graph.nodes:
        return
    fused = as_one(graph)
    assert [node.name for node in fused.nodes] == [graph.nodes[-1].name]
    apart = [shown(answer) for answer in answers(graph, functions, sent)]
    together = [shown(answer) for answer in answers(fused, functions, sent)]
    for one, other in zip(together, apart, strict=True):
        assert agree(one, other), (one, other)


def linked(*kinds: str, start: str = "x") -> tuple[Graph, dict[str, Function]]:
    """A chain: each step reads the first output of the one before it."""
    wire, nodes = Wire("", start), []
    for index, name in enumerate(kinds):
        takes = tuple(TensorSpec(t, parse_type(k)) for t, k in KINDS[name].takes.items())
        gives = tuple(TensorSpec(t, parse_type(k)) for t, k in KINDS[name].gives.items())
        inputs = {spec.name: wire for spec in takes}
        nodes.append(Node(f"s{index}", StepCall("steps", "f"), inputs, takes, gives))
        wire = Wire(f"s{index}", gives[0].name)
    outputs = {"out": wire}
    graph = Graph("demo", INPUTS, outputs, tuple(nodes), 8)
    return graph, {f"s{index}": KINDS[name].function for index, name in enumerate(kinds)}


def fused_runner(*kinds: str, start: str = "x") -> Steps:
    graph, functions = linked(*kinds, start=start)
    [node] = as_one(graph).nodes
    return runner(node, functions)


def test_an_error_is_of_the_step_that_has_it() -> None:
    steps = fused_runner("whole", "odd", "alias")
    fine, bad, worse = steps.run(
        [{"x": column([number], np.float32)} for number in (2, 3, float("nan"))]
    )
    assert fine["x"].tolist() == [2]  # type: ignore[index]
    assert (bad.step, str(bad)) == ("s1", "output `x` is int32, declared fp32")  # type: ignore[union-attr]
    assert (worse.step, str(worse)[:10]) == ("s0", "SystemExit")  # type: ignore[union-attr]


def test_items_of_another_step_cannot_be_changed() -> None:
    [outcome] = fused_runner("letters", "doubled", start="text").run([{"text": column([b"ab"])}])
    assert str(outcome).startswith("ValueError: assignment destination is read-only")


def test_requests_go_through_all_steps_together() -> None:
    calls: list[tuple[str, int]] = []

    def counted(name: str, function: Function) -> Function:
        def call(x: Any) -> dict[str, Any]:
            calls.append((name, len(x)))
            return function(x)

        return call

    graph, functions = linked("spoil", "spoil")
    [node] = as_one(graph).nodes
    steps = runner(node, {name: counted(name, f) for name, f in functions.items()})
    outcomes = steps.run([{"x": column([1, 2], np.float32)}, {"x": column([5], np.float32)}])
    assert [outcome["x"].tolist() for outcome in outcomes] == [[3, 4], [7]]  # type: ignore[index]
    assert calls == [("s0", 3), ("s1", 3)]


def test_steps_are_joined_only_when_all_of_them_allow_it() -> None:
    graph, _ = linked("spoil", "spoil")
    first, last = graph.nodes
    alone = replace(first, runs=StepCall("steps", "f", join=False))
    [node] = as_one(replace(graph, nodes=(alone, last))).nodes
    assert not runner(node, {"s0": spoil, "s1": spoil}).join


def test_an_input_that_only_optional_inputs_read_may_be_left_out() -> None:
    text, x = TensorSpec("text", parse_type("string")), TensorSpec("x", parse_type("fp32"), True)
    inputs = {"text": Wire("", "text"), "x": Wire("", "x")}
    first = Node("a", StepCall("steps", "f"), inputs, (text, x), (text,))
    second = replace(first, name="b", inputs={**inputs, "text": Wire("a", "text")})
    [node] = as_one(Graph("demo", INPUTS, {"out": Wire("b", "text")}, (first, second), 8)).nodes
    steps = runner(node, {"a": perhaps, "b": perhaps})
    row = column([b"n"])
    sent = [{"text": row, "x": None}, {"text": row, "x": column([1.5], np.float32)}]
    assert [o["text"].tolist() for o in steps.run(sent)] == [[b"n"], [b"n1.51.5"]]  # type: ignore[index]
    [missing] = steps.run([{"text": None}])
    assert str(missing) == "input `text` is missing"
