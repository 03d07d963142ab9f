"""`mmctl tune` on a real Triton: models that sleep, so that what helps is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import bench_simulate
import pytest
from sleepers import write_sleepers

from mmctl.cli.app import main
from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.alone]

COSTS = {"quick": (0.002, 0.0), "heavy": (0.05, 0.0005)}
NODES = {"first": ("quick", ["x"], ""), "second": ("heavy", ["first"], "")}
LITTLE = ("--seconds", "1.5", "--max-batch", "8", "--max-instances", "1")


@pytest.fixture
def naps(tmp_path: Path, runtime: Runtime) -> Path:
    settings = dict.fromkeys(COSTS, "batching: {max_batch: 1}   # small\n")
    write_sleepers(tmp_path, COSTS, {"two": NODES}, settings)
    return tmp_path


def test_the_batch_of_the_slow_model_grows_and_is_written(
    naps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One at a time `heavy` serves less than 20 a second, in batches several times that."""
    arguments = ["tune", "two", "--slo", "p95=400ms", "--trials", "2", "--apply", "--json"]
    assert main(["-C", str(naps), *arguments, *LITTLE]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["schema"] == 1
    models = {model["model"]: model for model in told["models"]}
    assert models["heavy"]["cost_ms"]["fixed"] == pytest.approx(50, rel=0.4)
    assert models["heavy"]["memory_bytes"]["weights"] > 1e6
    assert len(told["trials"]) == 2
    assert told["before"]["throughput"] < 25
    assert told["best"]["throughput"] > 1.5 * told["before"]["throughput"]
    text = (naps / "model_repository/heavy/model.yaml").read_text()
    size = models["heavy"]["best"]["max_batch"]
    assert size > 1
    assert f"batching: {{max_batch: {size}" in text
    assert "# small" in text
    assert "run `mmctl build two`" in said.err


def test_a_model_is_tuned_alone(naps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = naps / "ensembles" / "two" / "samples"
    arguments = ["tune", "heavy", "--slo", "p95=400ms", "--trials", "2", "--json", *LITTLE]
    assert main(["-C", str(naps), *arguments, "--samples", str(samples), "--seconds", "0.8"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [model["model"] for model in told["models"]] == ["heavy"]
    assert told["models"][0]["best"]["max_batch"] > 1
    assert told["best"]["throughput"] > 1.5 * told["before"]["throughput"]


def test_a_promise_that_nothing_keeps_is_told_with_the_best_there_was(
    naps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (naps / "model_repository/heavy/model.yaml").read_text()
    arguments = ["tune", "two", "--slo", "p95=20ms", "--trials", "1", "--apply"]
    assert main(["-C", str(naps), *arguments, *LITTLE]) == 1
    said = capsys.readouterr().err
    assert "error: no setting keeps p95=20ms: at best p95 was" in said
    assert (naps / "model_repository/heavy/model.yaml").read_text() == before


def test_ctrl_c_leaves_nothing_behind(naps: Path) -> None:
    command = [sys.executable, "-m", "mmctl", "-C", str(naps), "tune", "two", "--slo", "p95=400ms"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if "asking `two`" in line:
                break
        time.sleep(3)
        os.kill(child.pid, signal.SIGINT)
        child.stderr.read()
    assert child.returncode == 130
    assert not list((naps / ".mmctl/served").glob("private-*"))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert str(naps) not in (process / "cmdline").read_text()
        except OSError:
            continue  # ended meanwhile


def test_the_simulation_says_what_a_real_server_takes(tmp_path: Path, runtime: Runtime) -> None:
    """Few requests, and wide bounds: scripts/bench_simulate has the real ones."""
    with bench_simulate.world(tmp_path, 2.0) as (bed, world):
        rows = bench_simulate.rows_of(bed, world, 0.5, 300, 1)
    p50, p99 = rows
    assert p50.requests > 200
    assert p50.error == pytest.approx(0, abs=0.4)
    assert p99.error == pytest.approx(0, abs=0.5)
