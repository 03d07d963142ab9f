"""The runner of the bls form on the Python that the embedded server has."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bls_graphs import above, data, node, switch, tensor

from mmctl.compiler.bls import PARTS
from mmctl.compiler.steps import shipped
from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.alone]

ASK = """
import json, sys, threading, time
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
from bls_calls import NodeError
from bls_plan import Plan
from bls_run import Runner
from item_lists import pack

def crops(x):
    lists = [[np.full(2, row, np.float32)] * int(row) for row in x.ravel()]
    return np.array([[pack(row, "fp32", [-1])] for row in lists], object)

def slow(x):
    time.sleep(0.3)
    return x

def fails(**inputs):
    raise NodeError("gone", "unavailable")

MODELS = {"double": lambda x: 2 * x, "add": lambda x, o=0: x + o, "slow": slow, "fails": fails,
          "cut": crops, "count": lambda x: np.float32([[len(row)] for row, in x])}

def call(node, inputs, timeout_us):
    return {"y": MODELS[node.model](**inputs)}

answers, came = [], threading.Event()
plan = Plan(json.loads((folder / "plan.json").read_text()))
x = np.array(json.loads(sys.argv[2]), np.float32)[:, None]
shown = [output.name for output in plan.outputs]
Runner(plan).start({"x": x}, len(x), shown, call, lambda a: (answers.append(a), came.set()))
assert came.wait(10)
[answer] = answers
print(repr(str(answer) if isinstance(answer, NodeError) else
           {name: value.ravel().tolist() for name, value in answer.items()}))
"""

IS_BIG = above("x", 1)
LIST = [tensor("y", dims=[-1], items=True)]

PLANS: dict[str, tuple[list[Any], Any]] = {
    "chain": (
        [node("a", {"x": "x"}, model="double"), node("b", {"x": "a.y"}, model="double")],
        [8.0, 0.0, 4.0],
    ),
    "condition": (
        [node("a", {"x": "x"}, model="double", when=IS_BIG),
         node("b", {"x": "x", "o": "a.y?"}, model="add")],
        [6.0, 0.0, 1.0],
    ),
    "switch": (
        [node("a", {"x": "x"}, model="double", when=IS_BIG),
         node("b", {"x": "x"}, model="add", when=["not", IS_BIG]), switch("s", "a", "b")],
        [4.0, 0.0, 1.0],
    ),
    "timeout": ([node("a", {"x": "x"}, model="slow", timeout_ms=30, on_error=-1)], [-1.0] * 3),
    "failure": (
        [node("a", {"x": "x"}, model="fails", retries=1)], "node `a` (model `fails`): gone"
    ),
    "foreach": (
        [node("cut", {"x": "x"}, model="cut", outputs=LIST),
         node("a", {"x": "cut.y*"}, model="double", foreach=True, outputs=LIST),
         node("n", {"x": "a.y"}, model="count")],
        [8.0 + 8 * 2 + 2 * 8, 8.0, 8.0 + 8 + 8],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_runs_on_the_python_of_the_server(
    runtime: Runtime, tmp_path: Path, name: str
) -> None:
    nodes, expected = PLANS[name]
    for part in PARTS:
        (tmp_path / f"{part}.py").write_bytes(shipped(part))
    plan = data(nodes, {"y": f"{nodes[-1]['name']}.y"})
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [runtime.python, "-I", "-W", "error", "-c", ASK, tmp_path, "[2, 0, 1]"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = ast.literal_eval(done.stdout)
    assert (answer if isinstance(answer, str) else answer["y"]) == expected
