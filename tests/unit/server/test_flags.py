"""The command lines: of tritonserver, of docker, and the compose file that says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from mmctl.errors import InputError, WorldError
from mmctl.server.access import grpc_headers, http_headers, new_key
from mmctl.server.docker import INSIDE, MODELS, SHM_SIZE, docker_argv, release_of, require_engine
from mmctl.server.flags import Addresses, Options, shm_flags, triton_flags

LOOPBACK = Addresses("127.0.0.1", 1, 2, 3)
PLAIN = triton_flags("/tree", LOOPBACK, Options())


def test_everything_is_loaded_and_nothing_that_fails_takes_the_rest_with_it() -> None:
    assert {"--load-model=*", "--model-control-mode=explicit", "--exit-on-error=false"} <= {*PLAIN}


def test_it_listens_where_it_was_told_and_nowhere_else() -> None:
    assert [flag for flag in PLAIN if "address" in flag or "port" in flag] == [
        "--http-address=127.0.0.1",
        "--http-port=1",
        "--grpc-address=127.0.0.1",
        "--grpc-port=2",
        "--metrics-address=127.0.0.1",
        "--metrics-port=3",
    ]


@pytest.mark.parametrize(
    ("options", "flag", "there"),
    [
        pytest.param(Options(), "--disable-auto-complete-config", True, id="trees of ours"),
        pytest.param(
            Options(complete_configs=True), "--disable-auto-complete-config", False, id="others"
        ),
        pytest.param(Options(config_name="gpu"), "--model-config-name=gpu", True, id="a profile"),
        pytest.param(Options(load_all=False), "--load-model=*", False, id="starts empty"),
        pytest.param(Options(), "--cache-config=local,size=67108864", True, id="a cache"),
        pytest.param(Options(cache_bytes=0), "--cache-config=local,size=0", False, id="no cache"),
        pytest.param(
            Options(bls_threads=64), "--backend-config=python,thread-pool-size=64", True, id="calls"
        ),
        pytest.param(
            Options(otlp_url="http://h:1/v1/traces"),
            "--trace-config=opentelemetry,url=http://h:1/v1/traces",
            True,
            id="a collector",
        ),
        pytest.param(
            Options(otlp_url="http://h:1/v1/traces"),
            "--trace-config=rate=1000000",
            True,
            id="traces almost nothing unasked",
        ),
        pytest.param(Options(gpus=True), "--allow-gpu-metrics=true", True, id="GPUs"),
        pytest.param(Options(), "--allow-gpu-metrics=false", True, id="no GPUs"),
    ],
)
def test_options(options: Options, flag: str, there: bool) -> None:
    assert (flag in triton_flags("/tree", LOOPBACK, options)) is there


def test_a_key_closes_what_changes_a_server_over_both_protocols() -> None:
    closed = "model-repository,logging,trace,shared-memory:mmctl-key=k"
    flags = triton_flags("/tree", LOOPBACK, Options(key="k"))
    assert flags == (
        *PLAIN,
        f"--http-restricted-api={closed}",
        f"--grpc-restricted-protocol={closed}",
    )
    assert http_headers("k") == {"mmctl-key": "k"}
    assert grpc_headers("k") == {"triton-grpc-protocol-mmctl-key": "k"}


def test_without_a_key_all_is_open_and_no_header_is_sent() -> None:
    assert not any("restricted" in flag for flag in PLAIN)
    assert (http_headers(""), grpc_headers("")) == ({}, {})


def test_no_two_servers_have_the_same_key() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"[0-9a-f]{32}", key) for key in keys)
    assert "k-1" not in repr(Options(key="k-1"))


def test_shared_memory_is_named_for_each_python_backend() -> None:
    assert shm_flags("p_", ["onnxruntime", "python"]) == (
        "--backend-config=onnxruntime,shm-region-prefix-name=p_",
        "--backend-config=python,shm-region-prefix-name=p_",
    )


def test_a_container_gets_the_same_flags_on_a_read_only_tree() -> None:
    options = Options(config_name="gpu")
    argv = docker_argv("image:24.10-py3", Path("/tree"), LOOPBACK, options, name="n")
    before, after = argv[: argv.index("tritonserver")], argv[argv.index("tritonserver") + 1 :]
    assert after == triton_flags(MODELS, INSIDE, options)
    assert before == (
        *("docker", "run", "--rm", "--init", "--name=n", f"--shm-size={SHM_SIZE}"),
        "--volume=/tree:/models:ro",
        "--add-host=host.docker.internal:host-gateway",
        *("--publish=127.0.0.1:1:8000", "--publish=127.0.0.1:2:8001"),
        *("--publish=127.0.0.1:3:8002", "image:24.10-py3"),
    )


def test_the_release_is_read_off_the_image() -> None:
    assert release_of("registry:5000/nvidia/tritonserver:25.01-py3") == "25.01"
    with pytest.raises(InputError, match="names no Triton release"):
        release_of("tritonserver:latest")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(None, "`docker` is not on PATH", id="no docker"),
        pytest.param(
            "echo cannot connect >&2; exit 1", "no engine.*cannot connect", id="no engine"
        ),
    ],
)
def test_a_machine_without_containers_says_so(
    tmp_path: Path, script: str | None, said: str
) -> None:
    if script:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)
    with pytest.raises(WorldError, match=said) as error:
        require_engine({"PATH": str(tmp_path)})
    assert error.value.exit_code == 3


def test_compose_serves_as_mmctl_does(root: Path) -> None:
    services = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    triton = services["triton"]
    options = Options(otlp_url="http://jaeger:4318/v1/traces", key="${TRITON_KEY:?run mmctl stack}")
    assert triton["command"] == ["tritonserver", *triton_flags(MODELS, INSIDE, options)]
    assert triton["shm_size"] == SHM_SIZE
    assert [volume.rpartition(":")[2] for volume in triton["volumes"]] == ["ro"]
    ports = [port for service in services.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    dockerfile = (root / triton["build"]["context"] / "Dockerfile").read_text()
    assert (json.dumps(triton) + dockerfile).count("24.10") == 1
