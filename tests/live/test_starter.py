"""The workspace that `mmctl init` writes: built, served, asked, edited while it is served."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clocks import eventually

from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore
from mmctl.cli.app import main
from mmctl.client import Client
from mmctl.server.info import read_server
from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.exports]


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Path:
    folder = tmp_path_factory.mktemp("starter") / "mine"
    assert main(["init", str(folder)]) == 0
    assert main(["-C", str(folder), "build"]) == 0
    return folder


def test_its_samples_are_answered_as_expected(
    starter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(starter), "demo", "triage", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["sample"] for row in shown["answers"]} == {"outage", "refund", "thanks"}
    assert shown["forms"] == {"triage": "ensemble"}


@pytest.fixture
def watching(starter: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    said = starter / ".mmctl" / "said"
    command = [sys.executable, "-m", "mmctl", "-C", str(starter), "serve", "--watch", "--store"]
    with said.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "--http=0", "--grpc=0", "--metrics=0"],
            stdout=subprocess.DEVNULL,
            stderr=sink,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            eventually(lambda: process.poll() is not None or b"watching" in said.read_bytes())
            yield process, said
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def test_a_saved_step_is_served_caches_are_told_and_a_broken_one_keeps_the_old(
    watching: tuple[subprocess.Popen[bytes], Path], starter: Path
) -> None:
    _, said = watching
    info = read_server(starter / ".mmctl")
    assert info is not None
    steps = starter / "ensembles" / "triage" / "steps.py"
    with Client(info.grpc) as client:

        def queue() -> str:
            answer = client.infer("triage", {"text": "thanks"}).outputs["queue"]
            return str(answer.ravel()[0])

        assert queue() == "low"
        steps.write_text(steps.read_text().replace('"low"', '"whenever"'))
        eventually(lambda: queue() == "whenever")
        store = SharedStore(info.store)
        eventually(lambda: store.run(("GET", names.epoch("triage"))) != [None])
        right = steps.read_text()
        steps.write_text(right + "def broken(:\n")
        eventually(lambda: b"still serving" in said.read_bytes())
        assert queue() == "whenever"
        steps.write_text(right.replace('"whenever"', '"later"'))
        eventually(lambda: queue() == "later")
