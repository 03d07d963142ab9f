"""Deployments to a Triton that reads its models from an S3 store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from clocks import eventually
from deploy_bench import Bench, Code, Crowd
from servers import assert_gone

from mmctl.deploy.deployment import tree_of
from mmctl.server.control import Control
from mmctl.server.flags import Addresses, Options
from mmctl.server.guard import Guard
from mmctl.server.info import ServerInfo
from mmctl.server.ports import HOST, reserved
from mmctl.server.runtime import Runtime
from mmctl.server.wheel import wheel_launch

pytestmark = [pytest.mark.live, pytest.mark.exports]

TARGET = "prod"


@dataclass
class S3Bench(Bench):
    """The target `prod` is a Triton of this test on an S3 store."""

    runtime: Runtime = field(kw_only=True)
    url: str = field(kw_only=True)
    addresses: Addresses = field(kw_only=True)
    _guard: Guard | None = None
    _prefix: str = ""

    @property
    def info(self) -> ServerInfo:
        at = self.addresses
        places = [f"{HOST}:{port}" for port in (at.http, at.grpc, at.metrics, 0)]
        return ServerInfo(0, *places, served=self.url, release="", started="")

    @property
    def control(self) -> Control:
        return Control(f"{HOST}:{self.addresses.http}", "")

    def change(self, **code: object) -> Code:
        now = super().change(**code)
        target = {"url": f"grpc://{HOST}:{self.addresses.grpc}", "repository": self.url}
        self.put("mmctl.yaml", json.dumps({"targets": {TARGET: target}}))
        return now

    def serve(self, *_words: str) -> None:
        launch = wheel_launch(self.runtime, self.url, self.addresses, Options())
        # Where it puts its copies, of which it leaves some behind.
        copies = self.root / "copies"
        copies.mkdir(exist_ok=True)
        launch = replace(launch, env={**launch.env, "TRITON_AWS_MOUNT_DIRECTORY": str(copies)})
        self._prefix = launch.shm_prefix
        self._guard = Guard(launch, self.root / "triton.log", None, 0)
        try:
            eventually(self.control.live)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._guard:
            self._guard.end(at_once=True)
            assert_gone(self._prefix)
            self._guard = None

    def deploy(self, *names: str) -> int:
        return self.run("deploy", TARGET, *names, "--yes")

    def rollback(self, *words: str) -> int:
        return self.run("rollback", TARGET, *words, "--yes")


@pytest.fixture(scope="module")
def bench(
    tmp_path_factory: pytest.TempPathFactory, runtime: Runtime, s3_address: str
) -> Iterator[S3Bench]:
    with reserved([("http", 0), ("grpc", 0), ("metrics", 0)]) as ports:
        addresses = Addresses(HOST, *ports)
    made = S3Bench(
        tmp_path_factory.mktemp("s3"),
        alone=True,
        runtime=runtime,
        url=f"s3://http://{s3_address}/bucket/live/models",
        addresses=addresses,
    )
    made.change()
    assert made.run("prune", TARGET) == 0  # makes the folder, for which Triton will not start else
    made.serve()
    yield made
    made.stop()


def test_versions_come_and_go_without_a_gap(bench: S3Bench) -> None:
    first = bench.code
    assert bench.deploy() == 0
    assert bench.answers() == bench.right()
    crowd = Crowd(bench, pause_s=0.02)
    with crowd.asking(threads=4):
        crowd.move(bench.deploy, bench.change(shift=2, factor=20))
        assert bench.answers() == bench.right()
        crowd.move(lambda: bench.rollback("total"), first)
        assert bench.answers() == bench.right(first)
    assert crowd.failed == []
    assert crowd.stale == []
    bench.stop()
    bench.serve()
    assert bench.answers() == bench.right(first)


MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""

CONFIG = """
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
version_policy { specific { versions: VERSION } }
"""


def test_triton_sees_every_config_however_fast_they_follow(bench: S3Bench, tmp_path: Path) -> None:
    """It compares whole seconds: without waiting it takes every other load for none."""
    (tmp_path / "model.py").write_text(MODEL)
    tree = tree_of(bench.space, TARGET)
    for version in (1, 2):
        tree.copy("plain", version, str(tmp_path))
    for version in (1, 2, 1, 2):
        tree.write("plain", {"config.pbtxt": CONFIG.replace("VERSION", str(version)).encode()})
        bench.control.load("plain")
        seen = {(m.name, m.version) for m in bench.control.index() if m.state == "READY"}
        assert ("plain", str(version)) in seen
