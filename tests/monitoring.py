"""Prometheus from Debian's packages, for tests: the programs, a running one, and its answers."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import program

from mmctl.server.ports import reserved


def promtool(*arguments: str, cwd: Path) -> str:
    """What it says; fails the test when it says no."""
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metrics_in(expression: str) -> set[str]:
    """Names of the metrics that an expression reads: Triton's and ours."""
    return set(re.findall(r"\b(?:nv_\w+|mmctl_\w+|mmctl:[\w:]+|up)\b(?=[{\[\s)]|$)", expression))


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus at `address`, host:port."""

    address: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples; fails the test when the expression does not parse or cannot be computed."""
        data = self._get("query", query=expression)["data"]
        samples: list[dict[str, Any]] = data["result"]
        return samples

    def values(self, expression: str, label: str = "model") -> dict[str, float]:
        return {
            sample["metric"].get(label, ""): float(sample["value"][1])
            for sample in self.query(expression)
        }

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["data"]["groups"] for rule in group["rules"]]

    def ready(self) -> bool:
        """It takes connections before it answers questions."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}") as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None


@contextmanager
def running(folder: Path) -> Iterator[Prometheus]:
    """On the prometheus.yml of a folder; it ends with the block."""
    with reserved([("prometheus", 0)]) as (port,), (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        server = Prometheus(f"127.0.0.1:{port}")
        limit = time.monotonic() + 30
        while not server.ready():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < limit, (folder / "log").read_text()
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()
