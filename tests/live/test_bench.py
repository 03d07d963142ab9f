"""`mmctl bench` against a real Triton, by our engine and by NVIDIA's perf_analyzer.

Nodes sleep known times, so that the numbers are arithmetic on a busy machine, too.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from pipelines import signature, source
from repositories import write_pipelines, write_python_model
from servers import Serve
from sleepers import write_sleeper

from mmctl.cli.app import main
from mmctl.client.transport import GrpcTransport
from mmctl.errors import WorldError
from mmctl.inference import InferRequest
from mmctl.loadtest import engine
from mmctl.loadtest.perf_analyzer import Target, find_program, offer
from mmctl.loadtest.result import Measured
from mmctl.loadtest.schedule import Arrivals, ClosedLoop
from mmctl.server.guard import processes_with
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime
from mmctl.server.stubs import read_stubs

pytestmark = [pytest.mark.live, pytest.mark.alone]

STAGE_S, NAP_S = 0.02, 0.04
KNOWING = """
import triton_python_backend_utils as pb

KNOWN = {known!r}

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        text, x = (pb.get_input_tensor_by_name(request, n).as_numpy() for n in ("text", "x"))
        if (text.tolist(), x.tolist()) not in KNOWN:
            raise pb.TritonModelException(f"nobody sends {{text.tolist()}} {{x.tolist()}}")
        return pb.InferenceResponse([pb.Tensor("y", x)])
"""
KNOWING_CONFIG = """
max_batch_size: {batch}
input [{{name: "text", data_type: TYPE_STRING, dims: [-1]}},
       {{name: "x", data_type: TYPE_FP16, dims: [2, -1]}}]
output [{{name: "y", data_type: TYPE_FP16, dims: [2, -1]}}]
instance_group [{{kind: KIND_CPU, count: 1}}]
"""
ROWS = [
    (["you are", '"quoted" 蠢'], [[1.0, 2.0, 3.0], [0.5, 0.25, 0.0]]),
    (["", "a\nb", "c"], [[7.0], [8.0]]),
]
STAGES = ("one", "two", "three", "four")
CHAIN = source(
    """
    pipeline: chain
    inputs: {x: fp32}
    nodes:
      one: {model: one, inputs: {x: x}}
      two: {model: two, inputs: {x: one.y}}
      three: {model: three, inputs: {x: two.y}}
      four: {model: four, inputs: {x: three.y}}
    outputs: {y: four.y}
    """,
    name="chain",
)


def knowing(batch: bool) -> str:
    rows = [([[t.encode() for t in texts]], [x]) for texts, x in ROWS]
    known = rows if batch else [(texts[0], x[0]) for texts, x in rows]
    return KNOWING.format(known=known)


@pytest.fixture(scope="module")
def triton(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedTriton:
    folder = tmp_path_factory.mktemp("repository")
    write_sleeper(folder, "nap", NAP_S, instances=4)
    write_sleeper(folder, "echo", 0, more="dynamic_batching {}")
    for name in STAGES:
        write_sleeper(folder, name, STAGE_S)
    for name, batch in (("batched", 4), ("flat", 0)):
        config = KNOWING_CONFIG.format(batch=batch)
        write_python_model(folder, name, config, knowing(batch > 0))
    one = signature({"x": "fp32"}, {"y": "fp32"})
    write_pipelines(folder, [CHAIN], dict.fromkeys(STAGES, one))
    return serve(folder)


@pytest.fixture
def bench(
    triton: EmbeddedTriton, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """The result of `mmctl bench`, after the exit code was the one that is expected."""
    monkeypatch.chdir(workspace)
    # How late requests leave depends on what else this machine does; tests/cli has that.
    monkeypatch.setattr("mmctl.loadtest.result.LATE_MS", 10_000)
    (workspace / "samples").mkdir()
    (workspace / "samples" / "a.json").write_text('{"inputs": {"x": 1.0}}')

    def run(model: str, *words: str, code: int = 0) -> dict[str, Any]:
        out = workspace / "result.json"
        words = ("--samples=samples", *words, f"--out={out}")
        assert main(["bench", triton.grpc, model, *words]) == code
        return dict(json.loads(out.read_text()))

    return run


Bench = Callable[..., dict[str, Any]]


def test_both_engines_agree(bench: Bench) -> None:
    """Within 10 % on throughput and p50, at 1 and 4 callers: medians of three runs in turn."""
    found: dict[tuple[str, int, str], list[float]] = {}
    for _ in range(3):
        for name in ("mmctl", "perf_analyzer"):
            told = bench("nap", "--profile=concurrency:1,4", "--seconds=1.2", f"--engine={name}")
            assert (told["engine"], told["failed"], told["partial"]) == (name, 0, None)
            for level in told["levels"]:
                callers = level["callers"]
                found.setdefault((name, callers, "p50"), []).append(level["latency_ms"]["p50"])
                found.setdefault((name, callers, "rate"), []).append(level["throughput"])
    for callers in (1, 4):
        for measure in ("p50", "rate"):
            ours, theirs = (median(found[e, callers, measure]) for e in ("mmctl", "perf_analyzer"))
            print(f"{callers} callers, {measure}: {ours:.2f} and {theirs:.2f}")
            assert ours / theirs == pytest.approx(1, abs=0.1), (callers, measure, found)
        assert median(found["mmctl", callers, "p50"]) >= NAP_S * 1000


def test_both_engines_send_at_the_same_times(bench: Bench) -> None:
    words = ("--profile=burst:20,60", "--seconds=2")
    ours = bench("nap", *words)
    theirs = bench("nap", *words, "--engine=perf_analyzer")
    assert theirs["completed"] == theirs["offered"] == ours["offered"] == ours["completed"]
    assert [part["offered"] for part in theirs["slices"]] == [
        part["offered"] for part in ours["slices"]
    ]
    assert theirs["send_lag_ms"]["p50"] < 20
    [node] = theirs["nodes"]
    assert (node["model"], node["requests"]) == ("nap", theirs["offered"])


@pytest.mark.parametrize("model", ["batched", "flat"])
def test_perf_analyzer_sends_what_the_samples_say(
    bench: Bench, workspace: Path, model: str
) -> None:
    """Texts and free axes, with and without a batch axis: the model refuses all else."""
    (workspace / "samples" / "a.json").unlink()
    for number, (texts, x) in enumerate(ROWS):
        sample = {"inputs": {"text": texts, "x": x}}
        (workspace / "samples" / f"{number}.json").write_text(json.dumps(sample))
    words = ("--profile=rate:40", "--seconds=1", "--arrivals=constant")
    told = bench(model, *words, "--engine=perf_analyzer")
    assert told["completed"] == told["offered"] == 40
    assert bench(model, *words)["completed"] == 40


def test_perf_analyzer_says_itself_why_it_failed(runtime: Runtime, triton: EmbeddedTriton) -> None:
    request = InferRequest("nop", {"x": np.ones((1, 1), np.float32)})
    target = Target(triton.grpc, [request], batched=True)
    profile = ClosedLoop("baseline", (1,), 1)
    with pytest.raises(WorldError, match="unknown model: 'nop' is not found"):
        offer(find_program(runtime), target, profile, Arrivals.POISSON, 1, Measured(about={}))


def test_stages_of_an_ensemble_work_at_the_same_time(bench: Bench, triton: EmbeddedTriton) -> None:
    """Four stages that take 20 ms each, called one after the other, give 12.5 answers a second;
    as an ensemble each of them works on another request.
    """
    tensors = {"x": np.ones((1, 1), np.float32)}
    with GrpcTransport(triton.grpc, triton.headers) as transport:
        began = time.perf_counter()
        for _ in range(20):
            for name in STAGES:
                tensors = {"x": transport.infer(InferRequest(name, tensors)).outputs["y"]}
        serial = 20 / (time.perf_counter() - began)
    told = bench("chain", "--profile=concurrency:8", "--seconds=2")
    assert serial <= 1 / (4 * STAGE_S)
    assert told["throughput"] >= 2 * serial
    nodes = {node["model"]: node for node in told["nodes"]}
    assert set(nodes) == {"chain", *STAGES}
    assert all(nodes[name]["infer_ms"] >= STAGE_S * 1000 for name in STAGES)
    assert told["versions"] == dict.fromkeys(nodes, "1")
    assert told["gpu"] is None


def stalled(triton: EmbeddedTriton, bench: Bench, *words: str) -> dict[str, Any]:
    """A load of 4 s during which the server stands still for one."""
    pid = next(pid for pid in processes_with(triton.shm_prefix) if read_stubs(pid))

    def stall() -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(2, stall)
    timer.start()
    try:
        return bench("echo", *words, "--seconds=4")
    finally:
        timer.join()


def test_a_server_that_stalls_for_a_second_shows_in_the_p99(
    triton: EmbeddedTriton, bench: Bench
) -> None:
    """In an open loop, as for users: what was due meanwhile has waited. A caller that waits for its
    answer asks once in that second, and its p99 knows nothing of it.
    """
    told = stalled(triton, bench, "--profile=rate:100", "--arrivals=constant")
    assert told["offered"] == told["completed"] == 400
    assert told["latency_ms"]["p99"] > 700
    assert told["latency_ms"]["p50"] < 300
    closed = stalled(triton, bench, "--profile=baseline")
    assert closed["latency_ms"]["max"] > 700
    assert closed["latency_ms"]["p99"] < 350


def test_2000_requests_a_second_are_sent_from_one_core(bench: Bench) -> None:
    """By counts, and by CPU time with room for a busy machine: `scripts/bench_engine` has times."""
    told = bench("echo", "--profile=rate:2000", "--arrivals=constant", "--seconds=2")
    assert told["offered"] == 4000
    assert told["completed"] + told["failed"] == 4000
    assert told["cpu"]["client_seconds"] < 3


def test_a_server_that_dies_leaves_what_was_measured(
    triton: EmbeddedTriton,
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Last: the server that the tests share is gone then."""
    monkeypatch.setattr(engine, "GONE_S", 1.0)
    pid = next(pid for pid in processes_with(triton.shm_prefix) if read_stubs(pid))
    timer = threading.Timer(1.5, os.kill, (pid, signal.SIGKILL))
    timer.start()
    told = bench("nap", "--profile=rate:40", "--seconds=60", code=3)
    timer.join()
    assert "no Triton has answered since second" in told["partial"]
    assert told["completed"] > 10
    assert told["failed"] > 0
    assert "the load was cut short" in capsys.readouterr().err
