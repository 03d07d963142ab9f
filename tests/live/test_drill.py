"""`mmctl drill` on a real Triton: passes on what is sound, fails on what is not.

What is not sound: declarations that promise too much, and runners that break what is declared.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mmctl.cli.app import main
from mmctl.compiler.steps import shipped
from mmctl.files import sha256_file, write_text
from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.alone]

DOUBLE_CONFIG = """
name: "double" backend: "python" max_batch_size: 8
input [{name: "x", data_type: TYPE_FP32, dims: [1]}]
output [{name: "y", data_type: TYPE_FP32, dims: [1]}]
instance_group [{kind: KIND_CPU, count: 1}]
"""
DOUBLE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(r, "x").as_numpy()) for r in requests]

    def answer(self, x):
        return pb.InferenceResponse([pb.Tensor("y", 2 * x)])
"""

# Every kind of policy: a default, one that holds behind a failure, a branch that may be missing,
# items of a list, a model without any policy, rows on which a node does not run.
SOUND = """
pipeline: sound
inputs: {text: string, x: fp32}
nodes:
  length:
    step: measure
    inputs: {text: text}
    outputs: {n: fp32}
    timeout_ms: 200
    on_error: {n: -1}
  odd: {model: double, inputs: {x: x}, required: false, timeout_ms: 150}
  words: {step: cut, inputs: {text: text}, outputs: {size: "fp32[*]"}}
  twice:
    model: double
    foreach: words.size
    inputs: {x: words.size}
    timeout_ms: 250
    on_error: {y: [7]}
  large: {step: note, inputs: {x: x}, outputs: {note: string}}
  plain: {step: note, inputs: {x: x}, outputs: {note: string}}
  note: {switch: {large: "x > 10", plain: else}}
  told:
    step: tell
    inputs: {n: length.n, "odd?": odd.y, twice: twice.y, note: note.note}
    outputs: {told: string}
outputs: {told: told.told}
"""
PLAIN = """
pipeline: plain
inputs: {text: string, x: fp32}
nodes:
  length: {step: measure, inputs: {text: text}, outputs: {n: fp32}}
  size: {model: double, inputs: {x: length.n}}
  odd: {model: double, inputs: {x: x}}
outputs: {size: size.y, odd: odd.y}
"""
STEPS = """
import numpy as np

def measure(text):
    return {"n": np.array([len(row) for row in text], np.float32)}

def cut(text):
    return {"size": [[np.float32(len(word)) for word in row.split()] for row in text]}

def note(x):
    return {"note": [f"note {value:g}" for value in x]}

def tell(n, odd, twice, note):
    odd = [None] * len(n) if odd is None else odd
    rows = zip(n, odd, twice, note)
    return {"told": [f"{a:g} {b} {[float(v) for v in c]} {d}" for a, b, c, d in rows]}
"""
ROWS = [("one three five", 1.0), ("", 20.0), ("a b", 3.0), ("elevenseven", 40.0)]


def write_workspace(folder: Path, pipeline: str, steps: str = STEPS) -> Path:
    name = pipeline.split()[1]
    write_text(folder / "mmctl.yaml", "targets: {}\n")
    write_text(folder / "model_repository" / "double" / "config.pbtxt", DOUBLE_CONFIG)
    write_text(folder / "model_repository" / "double" / "1" / "model.py", DOUBLE)
    place = folder / "ensembles" / name
    write_text(place / "pipeline.yaml", pipeline)
    write_text(place / "steps.py", steps)
    for number, (text, x) in enumerate(ROWS):
        sample = {"inputs": {"text": text, "x": x}}
        write_text(place / "samples" / f"s{number}.json", json.dumps(sample))
    return folder


@pytest.fixture(autouse=True)
def _runtime(runtime: Runtime) -> Runtime:
    """Commands use the one Triton of the tests."""
    return runtime


def drilled(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the rows of the table."""
    code = main(["-C", str(folder), "drill", name, "--json", *options])
    return code, json.loads(capsys.readouterr().out)["rows"]


def verdicts(rows: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    return {(row["node"], row["fault"]): row["verdict"] for row in rows}


def digests(folder: Path) -> dict[str, str]:
    paths = [p for p in folder.rglob("*") if p.is_file() and ".mmctl" not in p.parts]
    return {str(path.relative_to(folder)): sha256_file(path) for path in paths}


def test_a_sound_pipeline_keeps_all_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = write_workspace(tmp_path, SOUND)
    assert main(["-C", str(workspace), "build"]) == 0
    before = digests(workspace)
    capsys.readouterr()
    code, rows = drilled(workspace, "sound", capsys)
    assert [row for row in rows if row["verdict"] != "kept"] == []
    assert code == 0
    nodes = ("length", "odd", "words", "twice", "large", "plain", "told")
    faults = ("slow", "raising", "empty", "misshaped", "dead")
    company = {("", "side by side"), ("", "in one batch")}
    assert verdicts(rows).keys() == company | {(n, f) for n in nodes for f in faults}
    assert digests(workspace) == before
    assert list((workspace / ".mmctl" / "served").iterdir()) == []


def test_an_ensemble_tells_of_what_fails_and_checks_no_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = write_workspace(tmp_path, PLAIN)
    code, rows = drilled(workspace, "plain", capsys, "--node", "size")
    assert code == 0
    found = {row["fault"]: row["verdict"] for row in rows if row["node"]}
    wrong = {"empty": "-", "misshaped": "-"}
    assert found == {"slow": "kept", "raising": "kept", "dead": "kept", **wrong}


def test_a_declared_value_that_the_next_step_cannot_take_breaks_the_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = STEPS.replace(
        "def tell(n, odd, twice, note):\n",
        "def tell(n, odd, twice, note):\n    assert min(n) >= 0\n",
    )
    workspace = write_workspace(tmp_path, SOUND, steps)
    code, rows = drilled(workspace, "sound", capsys, "--node", "length", "--fault", "raising")
    assert code == 1
    assert verdicts(rows)["length", "raising"] == "broken"
    assert "node `told`" in rows[-1]["got"]


def test_a_deadline_that_cannot_hold_breaks_the_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = STEPS.replace("import numpy as np", "import time\nimport numpy as np")
    steps = steps.replace("def note(x):\n", "def note(x):\n    time.sleep(0.2)\n")
    pipeline = SOUND.replace("nodes:", "deadline_ms: 100\nnodes:")
    code, rows = drilled(write_workspace(tmp_path, pipeline, steps), "sound", capsys)
    assert code == 1
    assert [(row["fault"], row["verdict"]) for row in rows] == [("alone", "broken")]
    assert "deadline_ms" in rows[0]["got"]


# Whoever is answered while others wait gets what the one before was answered.
SWAPPED = """
    def swapped(self, outcome: Any) -> Any:
        last, self.last = self.__dict__.get("last", outcome), outcome
        return last if self.runner._pending else outcome

    def execute("""
MUTATIONS = {
    "ignores on_error": (
        "bls_plan",
        'self.has_default: bool = entry.get("on_error", False)',
        "self.has_default: bool = False",
    ),
    "ignores timeout_ms": (
        "bls_plan",
        'self.timeout_s = seconds(entry.get("timeout_ms"))',
        "self.timeout_s = None",
    ),
    "ignores required": (
        "bls_plan",
        'self.required: bool = entry.get("required", True)',
        "self.required: bool = True",
    ),
    "swaps rows of a batch": (
        "bls_run",
        "found[output.name] = result.arrays[output.tensor]",
        "found[output.name] = result.arrays[output.tensor].array()[::-1]",
    ),
    "swaps requests": (
        "bls_model",
        "send(self._response(outcome, request))",
        "send(self._response(self.swapped(outcome), request))",
    ),
}


@pytest.mark.parametrize(
    ("mutation", "node", "fault", "broken"),
    [
        pytest.param("ignores on_error", "length", "raising", ("length", "raising"), id="on_error"),
        pytest.param("ignores timeout_ms", "length", "slow", ("length", "slow"), id="timeout_ms"),
        pytest.param("ignores required", "odd", "raising", ("odd", "raising"), id="required"),
        pytest.param("swaps rows of a batch", "odd", "raising", ("", "in one batch"), id="rows"),
        pytest.param("swaps requests", "odd", "raising", ("", "side by side"), id="requests"),
    ],
)
def test_a_runner_that_breaks_what_is_declared_fails_the_drill(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mutation: str,
    node: str,
    fault: str,
    broken: tuple[str, str],
) -> None:
    module, right, wrong = MUTATIONS[mutation]

    def mutated(name: str) -> bytes:
        text = shipped(name).decode()
        if name == module:
            assert text.count(right) == 1
            text = text.replace(right, wrong).replace("\n    def execute(", SWAPPED)
        return text.encode()

    monkeypatch.setattr("mmctl.compiler.bls.shipped", mutated)
    workspace = write_workspace(tmp_path, SOUND)
    code, rows = drilled(workspace, "sound", capsys, "--node", node, "--fault", fault)
    assert code == 1
    assert verdicts(rows)[broken] == "broken"


def test_an_interrupted_drill_leaves_nothing_behind(tmp_path: Path) -> None:
    workspace = write_workspace(tmp_path, SOUND)
    said = tmp_path / "said"
    command = [sys.executable, "-m", "mmctl", "-C", str(workspace), "drill", "sound"]
    with said.open("wb") as sink:
        process = subprocess.Popen(command, stderr=sink, stdout=sink)
        try:
            end = time.monotonic() + 40
            while b"`odd`: slow" not in said.read_bytes():
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            os.kill(process.pid, signal.SIGINT)
            code = process.wait(30)
    assert code == 130
    assert list((workspace / ".mmctl" / "served").iterdir()) == []
    assert _commands_with(str(tmp_path)) == []


def _commands_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended by now
        if text in command:
            found.append(command)
    return found
