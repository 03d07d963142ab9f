"""`mmctl bench`: what is measured and kept, exit codes, and what wrong input is told.

The server only speaks Triton's protocol and gives each input back as NAME_out.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_triton import FakeTriton, config, running

from mmctl.cli.app import main
from mmctl.loadtest import engine

Bench = Callable[..., int]
TENSORS = {"text": ("TYPE_STRING", [1])}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test machine may be busy; a second late is too late here, too."""
    monkeypatch.setattr("mmctl.loadtest.result.LATE_MS", 1000)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def triton(stack: ExitStack) -> FakeTriton:
    fake = FakeTriton(config("echo", TENSORS, max_batch=2))
    fake.loaded = ["echo"]
    return stack.enter_context(running(fake))


@pytest.fixture
def bench(
    triton: FakeTriton, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Bench:
    """`mmctl bench ADDRESS echo ...` in a workspace with two samples."""
    monkeypatch.chdir(workspace)
    (tmp_path / "samples").mkdir()
    for name in ("a", "b"):
        sample = {"inputs": {"text": name}, "expect": {"text_out": name}}
        (tmp_path / "samples" / f"{name}.json").write_text(json.dumps(sample))

    def run(*words: str, target: str | None = None, pipeline: str = "echo") -> int:
        return main(["bench", target or triton.address, pipeline, "--samples=samples", *words])

    return run


def result(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


def test_the_result_says_what_was_measured_and_how(
    bench: Bench, triton: FakeTriton, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert bench("--profile=rate:100", "--seconds=1", "--json", "--out=r.json") == 0
    told = result(capsys)
    assert told == json.loads((tmp_path / "r.json").read_text())
    assert (told["schema"], told["kind"], told["engine"]) == (1, "bench", "mmctl")
    assert (told["pipeline"], told["target"]) == ("echo", triton.address)
    assert (told["release"], told["model_version"]) == ("2.51.0", "1")
    assert told["command"].split()[0] == "mmctl"
    assert told["profile"] == {
        "text": "rate:100",
        "arrivals": "poisson",
        "seed": 1,
        "seconds": 1.0,
    }
    assert told["offered"] == told["completed"] > 50
    assert (told["failed"], told["errors"], told["partial"], told["gpu"]) == (0, {}, None, None)
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]
    assert told["send_lag_ms"]["p99"] >= 0
    assert told["cpu"]["client_seconds"] > 0
    assert (told["wrong_answers"], told["quality"]) == (None, None)
    assert {"cpu", "cores", "memory_gib", "python", "mmctl", "gpus"} <= set(told["environment"])
    [level] = told["levels"]
    assert level["callers"] is None
    assert sum(part["offered"] for part in told["slices"]) == told["offered"]
    texts = {bytes(request.raw_input_contents[0]) for request in triton.asked}
    assert texts == {b"\x01\0\0\0a", b"\x01\0\0\0b"}, "the samples take turns"


def test_a_level_for_each_number_of_callers(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--profile=concurrency:1..2", "--seconds=0.3") == 0
    out, _ = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines[2:5]] == ["callers", "1", "2"]


def test_answers_are_compared_when_asked(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--profile=baseline", "--seconds=0.3", "--json")
    assert bench(*words, "--check") == 0
    told = result(capsys)
    assert told["checked"] == told["completed"] > 0
    assert told["wrong_answers"] == 0
    sample = {"inputs": {"text": "a"}, "expect": {"text_out": "z"}}
    (tmp_path / "samples" / "a.json").write_text(json.dumps(sample))
    assert bench(*words, "--check") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["wrong_answers"] > 0
    assert "differed from the recorded one" in err


def test_quality_beside_speed(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = [{"inputs": {"text": w}, "label": w if w != "c" else "d"} for w in "abcc"]
    (tmp_path / "set.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ("--profile=baseline", "--seconds=0.2")
    assert bench(*words, "--quality=set.jsonl", "--json") == 0
    quality = result(capsys)["quality"]
    assert (quality["set"], quality["samples"], quality["failed"]) == ("set.jsonl", 4, 0)
    scored = quality["outputs"]["text_out"]
    assert scored["accuracy"]["value"] == 0.5
    assert scored["macro_f1"] == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert bench(*words, "--quality=set.jsonl") == 0
    assert "macro_f1" in capsys.readouterr().out


def test_a_score_that_cannot_be_taken_does_not_cost_the_load(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    (tmp_path / "set.jsonl").write_text('{"inputs": {"text": "a b c"}, "label": "a b d"}')
    assert bench("--profile=baseline", "--seconds=0.2", "--quality=set.jsonl", "--out=r.json") == 3
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["completed"] > 0
    assert told["quality"] is None
    assert "the load is whole" in told["partial"]
    assert "`text-metrics` extra" in capsys.readouterr().err


def test_a_set_that_is_wrong_is_told_before_the_load(
    bench: Bench, triton: FakeTriton, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "set.jsonl").write_text('{"inputs": {"txt": "a"}, "label": "a"}')
    assert bench("--quality=set.jsonl") == 2
    assert "sample `1`: model `echo`: no input `txt`" in capsys.readouterr().err
    assert bench("--quality=none.jsonl") == 2
    assert "none.jsonl" in capsys.readouterr().err
    assert triton.asked == []


def test_refusals_of_the_server_are_counted_by_their_reason(
    bench: Bench, triton: FakeTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        triton.failure = (grpc.StatusCode.INVALID_ARGUMENT, "no such thing")

    threading.Timer(0.5, refuse).start()
    assert bench("--profile=rate:50", "--seconds=1.5", "--json") == 0
    told = result(capsys)
    assert told["offered"] == told["completed"] + told["failed"]
    assert told["failed"] > 10
    [(reason, count)] = told["errors"].items()
    assert "no such thing" in reason
    assert count == told["failed"]


@pytest.mark.parametrize("profile", ["rate:50", "concurrency:2"])
def test_when_the_server_goes_down_what_was_measured_is_kept(
    bench: Bench,
    triton: FakeTriton,
    stack: ExitStack,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profile: str,
) -> None:
    monkeypatch.setattr(engine, "GONE_S", 0.3)
    threading.Timer(1, stack.close).start()
    assert bench(f"--profile={profile}", "--seconds=60", "--out=r.json") == 3
    out, err = capsys.readouterr()
    told = json.loads((tmp_path / "r.json").read_text())
    assert "no Triton has answered since second" in told["partial"]
    assert told["completed"] > 10
    assert 0 < told["failed"] < 500, "callers do not hammer on a closed door"
    assert told["levels"][0]["seconds"] < 30
    assert "the load was cut short" in err
    assert "cut short" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured(
    bench: Bench, triton: FakeTriton, tmp_path: Path, number: signal.Signals
) -> None:
    words = ["--samples=samples", "--profile=rate:50", "--seconds=60", "--out=r.json"]
    command = [sys.executable, "-m", "mmctl", "bench", triton.address, "echo", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        deadline = time.monotonic() + 30
        while len(triton.asked) < 40 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["partial"] == "interrupted"
    assert told["completed"] > 10


def test_an_engine_that_is_late_does_not_vouch_for_the_latencies(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Far more than one thread can send: the numbers are kept, and the exit code says no."""
    assert bench("--profile=rate:20000", "--seconds=0.5", "--out=r.json") == 1
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["send_lag_ms"]["p99"] > 1000
    assert told["partial"] is None
    assert "this machine did not keep up with the load" in capsys.readouterr().err


def test_a_server_that_counts_nothing_is_measured_without_its_side(
    bench: Bench, triton: FakeTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    triton.loaded = None
    assert bench("--profile=baseline", "--seconds=0.2", "--json") == 0
    assert result(capsys)["nodes"] == []


def told_of(capsys: pytest.CaptureFixture[str]) -> str:
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err


def test_nobody_at_the_address(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(target="127.0.0.1:1") == 3
    assert "127.0.0.1:1" in told_of(capsys)


def test_a_port_that_answers_something_else(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    class Other(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        address = f"127.0.0.1:{other.server_port}"
        code = bench(target=address)
        other.shutdown()
        thread.join()
    assert code == 3
    assert address in told_of(capsys)


def test_an_unknown_pipeline(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(pipeline="ecko") == 2
    assert "no model `ecko`" in told_of(capsys)
    assert main(["bench", "127.0.0.1:1", "ecko"]) == 2
    assert "no pipeline or model `ecko`" in told_of(capsys)


def test_no_samples(bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert bench("--samples=empty") == 2
    assert "no samples, so there is nothing to send" in told_of(capsys)


def test_a_sample_that_the_model_does_not_take(
    bench: Bench, triton: FakeTriton, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "samples" / "c.json").write_text('{"inputs": {"txt": "a"}}')
    assert bench() == 2
    assert "sample `c`: model `echo`: no input `txt`" in told_of(capsys)
    assert triton.asked == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out=nowhere/r.json"], "`--out nowhere/r.json` cannot be written"),
        (["--out=samples"], "`--out samples` cannot be written"),
        (["--profile=rte:5"], "`rte:5` is no load profile"),
        (["--seconds=0"], "a load of 0 s cannot be offered"),
        (["--engine=perf_analyzer", "--check"], "perf_analyzer does not compare answers"),
        (["--profile=replay:none.txt"], "none.txt"),
    ],
)
def test_wrong_options_are_told_before_anything_is_sent(
    bench: Bench,
    triton: FakeTriton,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    assert bench(*words) == 2
    assert told in told_of(capsys)
    assert triton.asked == []


def test_perf_analyzer_that_is_not_there(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MMCTL_RUNTIME", str(tmp_path / "none"))
    assert bench("--engine=perf_analyzer") == 3
    assert "there is no `perf_analyzer`" in told_of(capsys)


def test_two_results_beside_each_other(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--profile=rate:100", "--seconds=2.5")
    for name in ("a.out", "b.out"):
        assert bench(*words, f"--out={name}") == 0
    capsys.readouterr()
    assert main(["bench", "diff", "a.out", "b.out", "--json"]) in (0, 1)
    rows = {row["measure"]: row for row in json.loads(capsys.readouterr().out)["differences"]}
    assert rows["throughput"]["verdict"] == "no difference", "the schedule was the same"
    assert rows["throughput"]["ratio"] == pytest.approx(1, abs=0.05)
    (tmp_path / "other.json").write_text("{}")
    assert main(["bench", "diff", "a.out", "other.json"]) == 2
    assert "not a result of `mmctl bench --json`" in told_of(capsys)
    assert main(["bench", "diff", "a.out", "none.json"]) == 2
    assert "none.json" in told_of(capsys)
