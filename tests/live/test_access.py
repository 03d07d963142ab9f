"""Who may steer a server that mmctl starts: whoever has its key, over HTTP and over gRPC."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from clocks import eventually
from repositories import write_python_model
from servers import Serve

from mmctl import Client
from mmctl.cli.app import main
from mmctl.client.transport import GrpcTransport
from mmctl.errors import InferenceError
from mmctl.server.access import http_headers
from mmctl.server.control import Control, Refusal
from mmctl.server.info import info_path, read_server
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime

pytestmark = pytest.mark.live

CONFIG = """max_batch_size: 4
input [{name: "x", data_type: TYPE_FP32, dims: [2]}]
output [{name: "y", data_type: TYPE_FP32, dims: [2]}]"""

ECHO = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", tensor)]) for tensor in tensors]
"""

CLOSED = [
    ("POST", "v2/repository/index"),
    ("POST", "v2/repository/models/echo/load"),
    ("GET", "v2/logging"),
    ("POST", "v2/logging"),
    ("GET", "v2/trace/setting"),
    ("GET", "v2/models/echo/trace/setting"),
    ("GET", "v2/systemsharedmemory/status"),
    ("GET", "v2/cudasharedmemory/status"),
    ("POST", "v2/systemsharedmemory/unregister"),
    ("POST", "v2/repository/models/echo/unload"),
]
OPEN = [
    "v2",
    "v2/health/live",
    "v2/health/ready",
    "v2/models/echo",
    "v2/models/echo/ready",
    "v2/models/echo/config",
    "v2/models/echo/stats",
    "v2/models/stats",
]


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedTriton:
    repository = tmp_path_factory.mktemp("models")
    write_python_model(repository, "echo", CONFIG, ECHO)
    return serve(repository)


def status(server: EmbeddedTriton, method: str, path: str, headers: dict[str, str]) -> int:
    request = urllib.request.Request(
        f"http://{server.http}/{path}",
        method=method,
        headers=headers,
        data=b"{}" if method == "POST" else None,
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_what_changes_a_server_needs_its_key(
    server: EmbeddedTriton, method: str, path: str
) -> None:
    assert status(server, method, path, {}) == 403
    assert status(server, method, path, http_headers("0" * 32)) == 403
    assert status(server, method, path, http_headers(server.info.key)) == 200
    if path.endswith("unload"):
        server.load("echo")


@pytest.mark.parametrize("path", OPEN)
def test_what_only_tells_needs_none(server: EmbeddedTriton, path: str) -> None:
    assert status(server, "GET", path, {}) == 200


def test_over_grpc_it_is_the_same(server: EmbeddedTriton) -> None:
    with GrpcTransport(server.grpc) as stranger, GrpcTransport(server.grpc, server.headers) as own:
        assert stranger.ready()
        assert stranger.signature("echo").inputs
        with pytest.raises(InferenceError, match="protocol is restricted"):
            stranger.index()
        assert [entry.model for entry in own.index()] == ["echo"]


def test_steering_goes_on_with_the_key_and_says_what_is_missing_without(
    server: EmbeddedTriton,
) -> None:
    server.load("echo")
    assert server.failures() == {}
    assert Control(server.http).live()
    with pytest.raises(Refusal, match="restricted, expecting header 'mmctl-key'"):
        Control(server.http).index()


def test_the_key_is_in_no_log(server: EmbeddedTriton) -> None:
    assert server.info.key not in server.log.read_text()


def test_a_dead_process_is_still_seen_and_its_model_loaded_again(
    serve: Serve, tmp_path: Path
) -> None:
    write_python_model(tmp_path, "echo", CONFIG, ECHO)
    said: list[str] = []
    server = serve(tmp_path, say=said.append)
    [stub] = server.stub_pids()
    os.kill(stub, signal.SIGKILL)
    eventually(lambda: any("`echo` is reloaded" in line for line in said))
    with Client(server.grpc) as client:
        assert client.infer("echo", {"x": [[1.0, 2.0]]}).outputs["y"].tolist() == [[1.0, 2.0]]


def test_two_servers_have_two_keys(server: EmbeddedTriton, serve: Serve, tmp_path: Path) -> None:
    other = serve(tmp_path)
    assert status(other, "POST", "v2/repository/index", http_headers(server.info.key)) == 403


def test_perf_analyzer_needs_no_key(server: EmbeddedTriton, runtime: Runtime) -> None:
    done = subprocess.run(
        [
            *(str(runtime.perf_analyzer), "-m", "echo", "-i", "grpc", "-u", server.grpc),
            *("--measurement-mode=count_windows", "--measurement-request-count=20"),
            *("--max-trials=20", "--stability-percentage=999"),
        ],
        env=runtime.environment(os.environ) | {"HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "restricted" not in done.stdout + done.stderr
    assert "Throughput" in done.stdout, done.stderr


def test_commands_find_the_key_where_only_its_owner_may_read(
    runtime: Runtime, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_python_model(workspace / "model_repository", "echo", CONFIG, ECHO)
    here = ["-C", str(workspace)]
    served = ["serve", "--detach", "--json", "--http=0", "--grpc=0", "--metrics=0"]
    assert main([*here, *served]) == 0
    try:
        shown: dict[str, Any] = json.loads(capsys.readouterr().out)
        info = read_server(workspace / ".mmctl")
        assert info is not None
        assert info.key
        assert "key" not in shown
        assert shown["http"] == info.http
        mode = stat.S_IMODE(info_path(workspace / ".mmctl", "embedded").stat().st_mode)
        assert mode == 0o600
        assert main([*here, "infer", "ecko", "-i", "x=[1, 2]"]) == 2
        assert "no model `ecko`\n\nhint: did you mean `echo`?" in capsys.readouterr().err
    finally:
        assert main([*here, "stop"]) == 0
