"""`mmctl trace` from a workspace: what it says of a chain, and the pipeline that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sleepers import write_sleeper

from mmctl.cli.app import main
from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.alone]

CHAIN = """\
# One stage after the other, as one writes it first.
pipeline: chain
inputs: {x: fp32}
nodes:
  first:  {model: first, inputs: {x: x}}
  noted:  {step: note, inputs: {x: x, y: first.y}, outputs: {x: fp32, so_far: fp32}}
  second: {model: second, inputs: {x: noted.x}}   # gets what the step hands on
  answer: {step: answer, inputs: {so_far: noted.so_far, y: second.y}, outputs: {sum: fp32}}
outputs: {sum: answer.sum}
"""
STEPS = """\
def note(x, y):
    return {"x": x, "so_far": y * 10}


def answer(so_far, y):
    return {"sum": so_far + y}
"""


@pytest.fixture
def workspace(tmp_path: Path, runtime: Runtime) -> Path:
    (tmp_path / "mmctl.yaml").write_text("targets: {}\n")
    for name in ("first", "second"):
        write_sleeper(tmp_path / "model_repository", name, 0.05, instances=2, adds=1)
    samples = tmp_path / "ensembles" / "chain" / "samples"
    samples.mkdir(parents=True)
    (samples.parent / "pipeline.yaml").write_text(CHAIN)
    (samples.parent / "steps.py").write_text(STEPS)
    (samples / "three.json").write_text('{"inputs": {"x": 3}, "expect": {"sum": 44}}')
    return tmp_path


def run(workspace: Path, *arguments: str) -> int:
    return main(["-C", str(workspace), *arguments])


def test_a_needless_wait_is_found_and_removed_and_the_answers_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two stages of 50 ms each: one after the other, and then side by side."""
    assert run(workspace, "trace", "chain", "--requests=12", "--apply", "--json") == 0
    before = json.loads(capsys.readouterr().out)
    [found] = before["false_dependencies"]
    assert (found["reader"], found["reads"], found["instead"]) == ("second", "noted.x", "x")
    assert before["length_ms"]["p50"] > 100
    assert before["without_them_saves_ms"]["p50"] == pytest.approx(50, abs=15)
    written = (workspace / "ensembles" / "chain" / "pipeline.yaml").read_text()
    assert written == CHAIN.replace("x: noted.x}", "x: x}")

    assert run(workspace, "trace", "chain", "--requests=12", "--json") == 0
    after = json.loads(capsys.readouterr().out)
    assert after["false_dependencies"] == []
    assert after["length_ms"]["p50"] < before["length_ms"]["p50"] - 25
    predicted = before["length_ms"]["p50"] - before["without_them_saves_ms"]["p50"]
    assert after["length_ms"]["p50"] == pytest.approx(predicted, rel=0.3)
    bench = ("bench", "chain", "--profile=baseline", "--seconds=1", "--check", "--json")
    assert run(workspace, *bench) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["wrong_answers"], told["checked"]) == (0, told["completed"])


def test_a_server_of_others_is_asked_for_its_traces_only_where_they_are_known_to_go(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(workspace, "trace", "chain", "--target=127.0.0.1:9") == 2
    said = capsys.readouterr().err
    assert "nobody knows where `127.0.0.1:9` sends its traces" in said
    assert "--trace-config=mode=opentelemetry" in said
