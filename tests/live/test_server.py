"""The embedded Triton as a process: it starts, is watched, ends, and never leaves anything."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from clocks import eventually
from servers import Serve, assert_gone

from mmctl.cache.stores.redis import SharedStore
from mmctl.cli.app import main
from mmctl.errors import WorldError
from mmctl.server.guard import processes_with
from mmctl.server.info import read_server
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import VARIABLE, Runtime, check_numpy, precompile, read_runtime
from mmctl.server.stubs import read_stubs

pytestmark = pytest.mark.live

ECHO = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(r, "x").as_numpy()) for r in requests]

    def answer(self, x):
        return pb.InferenceResponse([pb.Tensor("y", x)])
"""

WARM_UP = """
model_warmup [{name: "w", batch_size: 1,
  inputs {key: "x", value {data_type: TYPE_FP32, dims: [2], zero_data: true}}}]
"""


def add_model(
    repository: Path, name: str, code: str = ECHO, count: int = 1, more: str = ""
) -> Path:
    """A Python model that answers y = x for two numbers; `more` goes into its config."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(
        f"""name: "{name}" backend: "python" max_batch_size: 4
        input [{{name: "x", data_type: TYPE_FP32, dims: [2]}}]
        output [{{name: "y", data_type: TYPE_FP32, dims: [2]}}]
        instance_group [{{kind: KIND_CPU, count: {count}}}]\n{more}"""
    )
    return repository / name


def infer(http: str, model: str, headers: dict[str, str] | None = None) -> Any:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
    request = urllib.request.Request(
        f"http://{http}/v2/models/{model}/infer",
        data=json.dumps({"inputs": [tensor]}).encode(),
        headers=headers or {},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)["outputs"][0]["data"]


def starts(server: EmbeddedTriton) -> int:
    """How many instances Triton has started so far, by its log."""
    return server.log.read_text().count("TRITONBACKEND_ModelInstanceInitialize")


def triton_of(shm_prefix: str) -> int:
    """The process of tritonserver: its own command line names the prefix for the Python backend."""
    return next(pid for pid in processes_with(shm_prefix) if read_stubs(pid))


@contextmanager
def mmctl_serve(workspace: Path, tree: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`mmctl serve` as people start it, once it answers; and its shared memory's prefix."""
    command = [sys.executable, "-m", "mmctl", "-C", str(workspace), "serve", f"--tree={tree}"]
    with subprocess.Popen(
        [*command, "--http=0", "--grpc=0", "--metrics=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http ")
            info = read_server(workspace / ".mmctl")
            assert info is not None
            yield process, prefix_of(workspace)
        finally:
            process.kill()


def prefix_of(workspace: Path) -> str:
    """Every region of the server that a workspace runs begins with this."""
    info = read_server(workspace / ".mmctl")
    assert info is not None
    spec = json.loads(Path(f"/proc/{info.pid}/cmdline").read_text().split("\0")[-2])
    return str(spec["shm_prefix"])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_a_server_answers_while_it_runs_and_leaves_nothing(serve: Serve, repository: Path) -> None:
    add_model(repository, "echo", count=2)
    with serve(repository) as server:
        assert server.failures() == {}
        assert infer(server.http, "echo") == [1.0, 2.0]
        assert len(processes_with(server.shm_prefix)) >= 3  # supervisor, tritonserver, stubs
        assert list(Path("/dev/shm").glob(f"{server.shm_prefix}*"))
    assert_gone(server.shm_prefix)
    assert not server.log.exists(), "a private server that went well keeps no log"


def test_a_second_load_of_an_unchanged_tree_reloads_nothing(
    serve: Serve, runtime: Runtime, repository: Path
) -> None:
    model = add_model(repository, "echo")
    precompile(runtime, [repository])
    with serve(repository) as server:
        started = starts(server)
        stubs = server.stub_pids()
        server.load("echo")
        server.load("echo")
        assert (starts(server), server.stub_pids()) == (started, stubs)
        (model / "1" / "model.py").write_text(
            ECHO.replace('pb.Tensor("y", x)', 'pb.Tensor("y", -x)')
        )
        precompile(runtime, [repository])
        server.load("echo")
        assert infer(server.http, "echo") == [-1.0, -2.0]


def test_models_that_do_not_load_are_reported_with_their_reasons(
    serve: Serve, repository: Path
) -> None:
    add_model(repository, "good")
    config = add_model(repository, "bad_config") / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_FP32", "TYPE_FLOAT32", 1))
    add_model(repository, "bad_python", "import no_such_package\n")
    (add_model(repository, "no_version") / "1").rename(repository / "no_version" / "one")
    with serve(repository) as server:
        failures = server.failures()
        assert set(failures) == {"bad_config", "bad_python", "no_version"}
        assert "config.pbtxt:2:" in failures["bad_config"]
        assert '"TYPE_FLOAT32"' in failures["bad_config"]
        assert "No module named 'no_such_package'" in failures["bad_python"]
        assert "at least one version must be available" in failures["no_version"]
        assert infer(server.http, "good") == [1.0, 2.0]
        with pytest.raises(WorldError, match=r"`bad_config` does not load: .*TYPE_FLOAT32"):
            server.load("bad_config")


def test_a_warm_up_that_kills_triton_is_reported_with_the_model_at_fault(
    serve: Serve, repository: Path, tmp_path: Path
) -> None:
    add_model(repository, "good")
    kills = """import os, signal
class TritonPythonModel:
    def execute(self, requests):
        os.kill(os.getppid(), signal.SIGSEGV)
"""
    add_model(repository, "fatal", kills, more=WARM_UP)
    with pytest.raises(WorldError, match="Triton died of SIGSEGV while it loaded `fatal`") as death:
        serve(repository, state=tmp_path / "state")
    assert death.value.exit_code == 3
    assert processes_with(str(repository)) == []
    assert not list(Path("/dev/shm").glob(f"mmctl_{os.getpid()}_*"))


@pytest.mark.parametrize("body", ["raise ValueError('not ready')", "import os; os._exit(3)"])
def test_a_warm_up_that_fails_is_reported_whether_triton_survives_it_or_not(
    serve: Serve, repository: Path, tmp_path: Path, body: str
) -> None:
    add_model(repository, "good")
    code = f"class TritonPythonModel:\n    def execute(self, requests): {body}\n"
    add_model(repository, "fatal", code, more=WARM_UP)
    try:
        with serve(repository, state=tmp_path / "state") as server:
            reason = server.failures()["fatal"]
    except WorldError as death:
        reason = str(death)
    assert "Triton died of SIGSEGV while it loaded `fatal`" in reason or "warmup" in reason
    assert processes_with(str(repository)) == []


def test_a_killed_stub_is_reported_and_its_model_reloaded(
    serve: Serve, runtime: Runtime, repository: Path
) -> None:
    add_model(repository, "echo", count=2)
    precompile(runtime, [repository])
    said: list[str] = []
    with serve(repository, say=said.append) as server:
        before = server.stub_pids()
        time.sleep(1.0)  # let the watch see them alive
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: any("reloaded" in line for line in said))
        assert any("a process of `echo` has died" in line for line in said)
        eventually(lambda: len(server.stub_pids()) == 2 and before[0] not in server.stub_pids())
        for _ in range(4):
            assert infer(server.http, "echo") == [1.0, 2.0]


def test_a_stub_that_dies_as_soon_as_its_model_is_reloaded_is_not_forgotten(
    serve: Serve, repository: Path
) -> None:
    """The watch has never seen it alive."""
    add_model(repository, "echo")
    reloaded: list[int] = []

    def say(line: str) -> None:
        if "is reloaded" in line and not reloaded:
            os.kill(server.stub_pids()[0], signal.SIGKILL)
        reloaded.extend([1] if "is reloaded" in line else [])

    with serve(repository, say=say) as server:
        time.sleep(1.0)  # let the watch see it alive
        os.kill(server.stub_pids()[0], signal.SIGKILL)
        eventually(lambda: len(reloaded) == 2)
        assert infer(server.http, "echo") == [1.0, 2.0]


def test_a_killed_triton_is_a_crash_that_leaves_nothing(serve: Serve, repository: Path) -> None:
    add_model(repository, "echo")
    server = serve(repository)
    os.kill(triton_of(server.shm_prefix), signal.SIGKILL)
    with pytest.raises(WorldError, match="Triton died of SIGKILL"):
        server.wait()
    assert_gone(server.shm_prefix)
    assert server.log.exists(), "after a crash the log stays"
    with pytest.raises(WorldError, match="Triton died of SIGKILL"), server:
        pass


def test_a_killed_supervisor_leaves_nothing_once_the_server_is_stopped(
    serve: Serve, repository: Path
) -> None:
    add_model(repository, "echo")
    server = serve(repository)
    os.kill(server.info.pid, signal.SIGKILL)
    eventually(lambda: not server.alive)
    server.stop()
    assert_gone(server.shm_prefix)


def test_ctrl_c_ends_mmctl_serve_cleanly(
    runtime: Runtime, workspace: Path, repository: Path
) -> None:
    add_model(repository, "echo")
    with mmctl_serve(workspace, repository) as (process, prefix):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert_gone(prefix)
        assert read_server(workspace / ".mmctl") is None


def test_a_killed_mmctl_serve_leaves_nothing(
    runtime: Runtime, workspace: Path, repository: Path
) -> None:
    add_model(repository, "echo")
    with mmctl_serve(workspace, repository) as (process, prefix):
        process.kill()
        eventually(lambda: processes_with(prefix) == [])
        assert_gone(prefix)
        assert read_server(workspace / ".mmctl") is None


def test_a_detached_server_and_its_store_are_found_and_stopped_by_other_commands(
    runtime: Runtime, workspace: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(repository, "echo")
    free = ["--http=0", "--grpc=0", "--metrics=0"]
    mmctl = ["-C", str(workspace)]
    serve = ["serve", f"--tree={repository}", "--store", "--detach", "--json", *free]
    assert main([*mmctl, *serve]) == 0
    told = json.loads(capsys.readouterr().out)
    store = SharedStore(told["store"])
    prefix = prefix_of(workspace)
    try:
        assert infer(told["http"], "echo") == [1.0, 2.0]
        assert store.run(("PING",)) == [b"PONG"]
        assert main([*mmctl, "serve", f"--tree={repository}", *free]) == 2
        assert "already runs" in capsys.readouterr().err
        assert main([*mmctl, "logs", "-n", "500"]) == 0
        assert "successfully loaded 'echo'" in capsys.readouterr().out
    finally:
        assert main([*mmctl, "stop"]) == 0
    assert_gone(prefix)
    eventually(lambda: processes_with(str(workspace / ".mmctl" / "servers")) == [])
    capsys.readouterr()
    assert main([*mmctl, "stop"]) == 0
    assert "no server" in capsys.readouterr().out


def test_a_port_in_use_is_named_before_anything_starts(
    runtime: Runtime, workspace: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(repository, "echo")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["-C", str(workspace), "serve", f"--tree={repository}", f"--http={port}"]) == 3
    said = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 cannot be used for http" in said
    assert "hint: pass another with `--http N`" in said


def test_only_models_that_declare_it_are_answered_from_the_cache(
    serve: Serve, repository: Path
) -> None:
    add_model(repository, "plain")
    add_model(repository, "cached", more="response_cache {enable: true}")
    with serve(repository) as server:
        for model in ("plain", "plain", "cached", "cached"):
            infer(server.http, model)
        hits = {}
        for model in ("plain", "cached"):
            with urllib.request.urlopen(f"http://{server.http}/v2/models/{model}/stats") as answer:
                stats = json.load(answer)["model_stats"][0]["inference_stats"]
            hits[model] = stats["cache_hit"]["count"]
        assert hits == {"plain": 0, "cached": 1}


def test_only_requests_with_a_sampled_traceparent_are_traced(
    serve: Serve, repository: Path
) -> None:
    add_model(repository, "echo")
    with serve(repository) as server, collector(server.info.otlp) as received:
        infer(server.http, "echo")
        trace = "0af7651916cd43dd8448eb211c80319c"
        infer(server.http, "echo", {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        eventually(lambda: "compute" in spans(received))
        assert {span["traceId"] for span in all_spans(received)} == {trace}


@contextmanager
def collector(address: str) -> Iterator[list[Any]]:
    """An OTLP collector: the bodies that were sent to it."""
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    host, _, port = address.partition(":")
    with HTTPServer((host, int(port)), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def all_spans(received: list[Any]) -> list[Any]:
    return [
        span
        for body in received
        for resource in body["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def spans(received: list[Any]) -> set[str]:
    return {span["name"] for span in all_spans(received)}


def test_requirements_that_need_numpy_2_are_refused_and_the_runtime_stays(
    runtime: Runtime, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workspace / "ensembles" / "greedy" / "requirements.txt"
    file.parent.mkdir(parents=True)
    file.write_text("numpy>=2\n")
    assert main(["-C", str(workspace), "runtime", "install"]) == 3
    said = capsys.readouterr().err
    assert "what `ensembles/greedy/requirements.txt` names cannot be installed" in said
    assert "(constraint) numpy==1.26.4" in said
    assert read_runtime(runtime.root) == runtime
    check_numpy(runtime)


def test_an_install_that_fails_leaves_nothing(
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "new" / "runtime"
    (tmp_path / "no_packages").mkdir()
    monkeypatch.setenv(VARIABLE, str(root))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "no_packages"))
    assert main(["-C", str(workspace), "runtime", "install"]) == 3
    assert "error: the embedded Triton cannot be installed" in capsys.readouterr().err
    assert not root.exists()
