"""Plans for the runner of the bls form, models to call, and what a pipeline means row by row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bls_calls import NodeError
from bls_conditions import conjuncts, evaluate, references
from bls_plan import Node, Plan
from bls_run import Runner

PATIENCE_S = 10
"""No test waits longer for what must come."""


def tensor(name: str, dtype: str = "fp32", dims: Sequence[int] = (), **more: Any) -> Any:
    return {"name": name, "dtype": dtype, "dims": list(dims), **more}


def node(name: str, inputs: Mapping[str, str], **keys: Any) -> Any:
    """A node as in plan.json. `inputs` map to "tensor" or "node.tensor"; "?" at the end makes one
    optional, "*" gives it item by item. `on_error` is the default of all outputs.
    """
    outputs = [dict(output) for output in keys.pop("outputs", [tensor("y")])]
    if "on_error" in keys:
        outputs = [{**output, "default": keys["on_error"]} for output in outputs]
        keys["on_error"] = True
    wires = [_input(key, wire) for key, wire in inputs.items()]
    base = {"name": name, "model": name, "max_batch": 8, "max_in_flight": 4}
    return {**base, "inputs": wires, "outputs": outputs, **keys}


def _input(name: str, wire: str) -> Any:
    source, _, output = wire.rstrip("?*").rpartition(".")
    entry: dict[str, Any] = {"name": name, "node": source, "tensor": output}
    return (
        entry
        | ({"optional": True} if "?" in wire else {})
        | ({"each": True} if "*" in wire else {})
    )


def switch(name: str, *branches: str, **keys: Any) -> Any:
    return node(name, {}, branches=list(branches), model="", **keys)


def ref(wire: str, *subscripts: int) -> Any:
    source, _, output = wire.rpartition(".")
    return ["ref", source, output, list(subscripts)]


def above(wire: str, value: Any, *subscripts: int) -> Any:
    return [">", ref(wire, *subscripts), ["value", value]]


def data(nodes: Sequence[Any], outputs: Mapping[str, str], **keys: Any) -> dict[str, Any]:
    """plan.json. `inputs` are x alone unless they are given."""
    shown = [{"name": key, **_source(wire)} for key, wire in outputs.items()]
    base = {"schema": 1, "batched": True, "answers_late": True, "inputs": [tensor("x")], "pins": {}}
    return {**base, "outputs": shown, "nodes": list(nodes), **keys}


def _source(wire: str) -> dict[str, str]:
    source, _, output = wire.rpartition(".")
    return {"node": source, "tensor": output}


def floats(*rows: float) -> Any:
    """One value a row: [batch, 1]."""
    return np.array(rows, np.float32)[:, None]


def texts(*rows: bytes) -> Any:
    array = np.empty((len(rows), 1), object)
    array[:, 0] = rows
    return array


def flat(array: Any) -> list[Any]:
    return np.ravel(array).tolist()


@dataclass
class Called:
    node: str
    inputs: dict[str, Any]
    timeout_us: int
    thread: int


Function = Callable[..., Any]
"""Inputs by name -> outputs by name, or the only output, y."""


def double(**inputs: Any) -> Any:
    return 2 * inputs["x"]


def fails(message: str = "no", kind: str = "error") -> Function:
    def function(**_inputs: Any) -> Any:
        raise NodeError(message, kind)

    return function


class Gate:
    """A model that answers when the test says so."""

    def __init__(self, then: Function = double) -> None:
        self._then = then
        self._calls = threading.Semaphore(0)
        self._passes = threading.Semaphore(0)

    def __call__(self, **inputs: Any) -> Any:
        self._calls.release()
        assert self._passes.acquire(timeout=3 * PATIENCE_S)  # who waits for this gives up before
        return self._then(**inputs)

    def await_calls(self, count: int = 1) -> None:
        """Until so many more calls have come in."""
        for _ in range(count):
            assert self._calls.acquire(timeout=PATIENCE_S), "the model was not called"

    @property
    def is_called(self) -> bool:
        """Whether another call has come in."""
        return self._calls.acquire(blocking=False)

    def open(self, count: int = 1) -> None:
        self._passes.release(count)


class InTurn:
    """A model whose calls do one thing after the other, the last of them for ever."""

    def __init__(self, *functions: Function) -> None:
        self._functions = list(functions)
        self._lock = threading.Lock()

    def __call__(self, **inputs: Any) -> Any:
        with self._lock:
            function = self._functions[0]
            if len(self._functions) > 1:
                self._functions.pop(0)
        return function(**inputs)


class Models:
    """The seam to Triton: each node has a function; one that has none doubles `x`."""

    def __init__(self, **functions: Function) -> None:
        self.functions = functions
        self.calls: list[Called] = []

    def __call__(self, node: Node, inputs: dict[str, Any], timeout_us: int) -> Any:
        self.calls.append(Called(node.name, inputs, timeout_us, threading.get_ident()))
        outputs = self.functions.get(node.name, double)(**inputs)
        return {"y": outputs} if hasattr(outputs, "shape") else outputs

    def of(self, name: str) -> list[Called]:
        return [call for call in self.calls if call.node == name]

    def called(self) -> list[str]:
        return [call.node for call in self.calls]


@dataclass
class Asked:
    """A request: its answer, once that has come."""

    answers: list[Any] = field(default_factory=list)
    _came: threading.Event = field(default_factory=threading.Event)

    def take(self, answer: Any) -> None:
        self.answers.append(answer)
        self._came.set()

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    def wait(self) -> Any:
        assert self._came.wait(PATIENCE_S), "no answer came"
        return self.answers[0]

    def outputs(self) -> dict[str, Any]:
        answer = self.wait()
        assert not isinstance(answer, NodeError), answer
        return answer

    def rows(self, name: str = "y") -> list[Any]:
        return flat(self.outputs()[name])

    def error(self) -> NodeError:
        answer = self.wait()
        assert isinstance(answer, NodeError), answer
        return answer


class Pipeline:
    """A runner, and the models that it calls."""

    def __init__(self, plan: dict[str, Any], **functions: Function) -> None:
        self.plan = Plan(plan)
        self.runner = Runner(self.plan)
        self.models = Models(**functions)

    def ask(
        self,
        *rows: float,
        wanted: Sequence[str] | None = None,
        said: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Asked:
        """Begin a request: `rows` of x, or arrays by name. `said`: its parameters."""
        asked = Asked()
        given = {"x": floats(*rows), **inputs} if rows else inputs
        names = wanted or [output.name for output in self.plan.outputs]
        if wanted is None and self.plan.provenance:
            names = [*names, "provenance"]
        batch = next(iter(given.values())).shape[0]
        told = repr(sorted((said or {}).items())).encode()
        self.runner.start(given, batch, names, self.models, asked.take, told)
        return asked

    def slots(self, name: str) -> Any:
        return self.plan.nodes[name].slots

    def await_idle(self) -> None:
        """Until nothing is under way any more, as it must come to be."""
        _await(lambda: all(node.slots.is_idle for node in self.plan.nodes.values()))

    def await_late(self, name: str, count: int) -> None:
        """Until so many answers of a node came when nobody waited for them."""
        _await(lambda: self.slots(name).late_total >= count)
        self.await_idle()
        assert self.slots(name).late_total == count


def _await(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it does not come to be")


def pipeline(
    nodes: Sequence[Any], outputs: Mapping[str, str] | None = None, **more: Any
) -> Pipeline:
    """Keys of the plan and functions of models, side by side; shows the last node's y."""
    functions = {key: more.pop(key) for key in [n["name"] for n in nodes] if key in more}
    shown = outputs or {"y": f"{nodes[-1]['name']}.y"}
    return Pipeline(data(nodes, shown, **more), **functions)


# What a pipeline means, one row and one node after the other.

ABSENT = object()


@dataclass(frozen=True)
class Failed:
    node: str


def reference(plan: Mapping[str, Any], functions: Mapping[str, Any], row: dict[str, Any]) -> Any:
    """Outputs of one row, or Failed, or ABSENT where an output has no value. A function takes
    values of one row and gives y, or raises; all tensors hold one number.
    """
    left: dict[str, Any] = {"": row}
    for entry in plan["nodes"]:
        state = _state(entry, functions, left)
        if isinstance(state, Failed) and entry.get("on_error"):
            state = {output["name"]: output["default"] for output in entry["outputs"]}
        elif isinstance(state, Failed) and not entry.get("required", True):
            state = ABSENT
        left[entry["name"]] = state
    shown = [left[output["node"]] for output in plan["outputs"]]
    for state in shown:
        if isinstance(state, Failed):
            return state
    if ABSENT in shown:
        return ABSENT
    return {o["name"]: left[o["node"]][o["tensor"]] for o in plan["outputs"]}


def _state(entry: Any, functions: Mapping[str, Any], left: dict[str, Any]) -> Any:
    if "branches" in entry:
        states = [left[branch] for branch in entry["branches"]]
        failed = [state for state in states if isinstance(state, Failed)]
        values = [state for state in states if isinstance(state, dict)]
        return failed[0] if failed else values[0] if values else ABSENT
    if (picked := _picked(entry.get("when"), left)) is not True:
        return picked
    wires = {item["name"]: item for item in entry["inputs"]}
    for source in [*(w["node"] for w in wires.values()), *entry.get("after", [])]:
        if isinstance(left[source], Failed):
            return left[source]
    if any(left[w["node"]] is ABSENT for w in wires.values() if not w.get("optional")):
        return ABSENT
    given = {k: w for k, w in wires.items() if left[w["node"]] is not ABSENT}
    try:
        y = functions[entry["name"]](**{k: left[w["node"]][w["tensor"]] for k, w in given.items()})
    except NodeError:
        return Failed(entry["name"])
    return {"y": y}


def _picked(when: Any, left: dict[str, Any]) -> Any:
    for tree in conjuncts(when):
        states = [left[source] for source, _ in references(tree)]
        for state in states:
            if isinstance(state, Failed):
                return state
        if ABSENT in states or not _holds(tree, left):
            return ABSENT
    return True


def _holds(tree: Any, left: dict[str, Any]) -> bool:
    return bool(np.all(evaluate(tree, lambda source, name: floats(left[source][name]))))
