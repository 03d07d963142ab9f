"""Deployments to two real Tritons on one tree, over TLS; and to the one of docker-compose.yml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trustme
from deploy_bench import SCALE, Bench, Crowd

from mmctl.client import Client
from mmctl.client.tls import Tls
from mmctl.deploy.state import said_digests
from mmctl.deploy.tree import LocalTree
from mmctl.server import wheel
from mmctl.server.access import GRPC_HEADER
from mmctl.server.ports import reserved
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime
from mmctl.serving.session import prepare

pytestmark = [pytest.mark.live, pytest.mark.exports]

KEY = "the key of both"
TREE = ".mmctl/served/embedded"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Bench:
    made = Bench(tmp_path_factory.mktemp("replicas"))
    made.change()
    prepare(made.space, [], made.root / TREE, print)
    return made


@pytest.fixture(scope="module")
def tls(bench: Bench) -> Tls:
    """A server certificate for loopback, and who vouches for it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(bench.root / "ca.pem"))
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(str(bench.root / "server.key"))
    server.cert_chain_pems[0].write_to_path(str(bench.root / "server.pem"))
    return Tls(ca=bench.root / "ca.pem")


@pytest.fixture(scope="module")
def replicas(bench: Bench, tls: Tls, runtime: Runtime) -> Iterator[tuple[str, ...]]:
    """Addresses of two servers on the tree, whose gRPC is encrypted by Triton itself."""
    flags = wheel.triton_flags

    def with_tls(*arguments: Any) -> tuple[str, ...]:
        files = {"server-cert": "server.pem", "server-key": "server.key", "root-cert": "ca.pem"}
        paths = (f"--grpc-{flag}={bench.root / file}" for flag, file in files.items())
        return (*flags(*arguments), "--grpc-use-ssl=true", *paths)

    with pytest.MonkeyPatch.context() as env, ExitStack() as running:
        env.setenv("TRITON_HEADERS", f"{GRPC_HEADER}: {KEY}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wheel, "triton_flags", with_tls)
            patch.setattr("mmctl.server.process.new_key", lambda: KEY)
            servers = [running.enter_context(start(bench, runtime)) for _ in range(2)]
        yield tuple(f"grpcs://{server.grpc}" for server in servers)


def start(bench: Bench, runtime: Runtime, **ports: int) -> EmbeddedTriton:
    state = bench.root / "state"
    return EmbeddedTriton.start(runtime, bench.root / TREE, state=state, private=True, **ports)


def point_at(bench: Bench, replicas: tuple[str, ...], **more: object) -> None:
    target = {
        "url": list(replicas),
        "repository": TREE,
        "headers_env": "TRITON_HEADERS",
        "tls": {"ca": "ca.pem"},
        **more,
    }
    bench.put("mmctl.yaml", json.dumps({"targets": {"prod": target}}))


def answers(bench: Bench, replicas: tuple[str, ...], tls: Tls) -> list[dict[str, float]]:
    """Of each replica, to x = 3."""
    found = []
    for url in replicas:
        with Client(url, tls=tls) as client:
            found.append(
                {
                    name: float(client.infer(name, {"x": [[3.0]]}).outputs["y"].ravel()[0])
                    for name in bench.pipelines
                }
            )
    return found


def test_two_replicas_on_one_tree_are_deployed_to_in_turn_without_a_gap(
    bench: Bench, replicas: tuple[str, ...], tls: Tls, capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = Crowd(bench, pause_s=0.002, addresses=replicas, tls=tls)

    def deploy() -> int:
        point_at(bench, replicas)
        return bench.run("deploy", "prod", "--yes")

    with crowd.asking(threads=4):
        crowd.move(deploy, bench.change(shift=5, factor=20))
        assert answers(bench, replicas, tls) == [bench.right()] * 2
        good = bench.code
        taken = bench.root / "taken"
        once = f"import os\n\nos.close(os.open({str(taken)!r}, os.O_CREAT | os.O_EXCL))\n"
        bench.change(shift=6)
        bench.put("model_repository/scale/model.py", once + SCALE.replace("FACTOR", "30"))
        bench.build()
        capsys.readouterr()
        assert deploy() == 1  # the first replica takes it, the second one does not
        assert answers(bench, replicas, tls) == [bench.right(good)] * 2
    said = capsys.readouterr().err
    assert taken.exists()
    assert f" on {replicas[1].removeprefix('grpcs://')}: `scale` does not load" in said
    assert "all replicas run what they ran before" in said
    print(f"{len(crowd.seen)} requests, {len(crowd.failed)} failed, {len(crowd.stale)} stale")
    assert len(crowd.seen) > 200
    assert crowd.failed == []
    assert crowd.stale == []
    capsys.readouterr()
    assert bench.run("status", "prod", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert {row["state"] for row in rows} == {"ready"}
    assert {row["replica"] for row in rows} == {r.removeprefix("grpcs://") for r in replicas}


def test_a_release_that_the_server_is_not_is_refused(
    bench: Bench, replicas: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bench.change()
    point_at(bench, replicas, release="25.01")
    assert bench.run("deploy", "prod", "--dry-run") == 2
    said = capsys.readouterr().err
    assert "mmctl.yaml says release 25.01, and its Triton is 24.10 (2.51.0)" in said


def test_served_configs_tell_what_pipelines_are_made_from(bench: Bench) -> None:
    state = LocalTree(bench.root / TREE).read()
    for name in bench.pipelines:
        model = state.models[name]
        keys = {version: model.versions[version].key for version in model.live}
        assert said_digests(model.files) == keys
    committed = (bench.root / "model_repository/total/config.pbtxt").read_text()
    assert "mmctl.digest" not in committed


def test_the_server_of_docker_compose_needs_no_entry(
    bench: Bench, runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a container engine the embedded Triton stands at the ports that the file says."""
    bench.put("mmctl.yaml", "targets: {}\n")
    assert bench.run("stack") == 0
    env = bench.root / ".env"
    key = dict(line.split("=", 1) for line in env.read_text().splitlines())["TRITON_KEY"]
    with reserved((("http", 0), ("grpc", 0), ("metrics", 0))) as ports:
        http, grpc, metrics = ports
        with env.open("a") as file:
            file.write(f"TRITON_HTTP_PORT={http}\nTRITON_GRPC_PORT={grpc}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mmctl.server.process.new_key", lambda: key)
        with start(bench, runtime, http=http, grpc=grpc, metrics=metrics):
            new = bench.change(shift=9)
            assert bench.run("deploy", "compose", "--yes") == 0
            with Client(f"127.0.0.1:{grpc}") as client:
                answer = client.infer("total", {"x": [[3.0]]}).outputs["y"]
            assert float(answer.ravel()[0]) == new.answer("total", 3)
            capsys.readouterr()
            assert bench.run("deploy", "compose", "--dry-run") == 0
            assert "nothing to do" in capsys.readouterr().out
