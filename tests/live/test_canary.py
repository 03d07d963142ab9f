"""Canaries on a real Triton: who answers, what a restarted server serves, how they end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from clocks import eventually
from deploy_bench import Bench, Code

from mmctl.client import Client
from mmctl.errors import MmctlError
from mmctl.inference import InferResponse
from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.exports, pytest.mark.alone]

SHARE = 20
REQUESTS = 1000
PAUSE_S = 0.004


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("canary"))
    made.change()
    made.serve()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def curious(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients hear of a canary soon."""
    monkeypatch.setattr("mmctl.client.canary.ASK_AGAIN_S", 0.5)


def y_of(answer: InferResponse) -> float:
    return float(answer.outputs["y"].ravel()[0])


@dataclass
class Users:
    """Clients whose every request has a key of its own."""

    bench: Bench
    seen: list[tuple[str, float]] = field(default_factory=list)
    """Which model answered, and what, to x = 3."""
    failed: list[str] = field(default_factory=list)
    know: set[int] = field(default_factory=set)
    """The clients to which a candidate has answered."""

    @contextmanager
    def asking(self, threads: int = 4) -> Iterator[None]:
        stop = threading.Event()
        address = self.bench.info.grpc
        workers = [
            threading.Thread(target=self._ask, args=(stop, address, n)) for n in range(threads)
        ]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            stop.set()
            for worker in workers:
                worker.join(60)

    def forget(self) -> None:
        self.seen = []

    def models(self) -> list[str]:
        return [model for model, _ in self.seen]

    def _ask(self, stop: threading.Event, address: str, number: int) -> None:
        x = np.full((1, 1), 3, np.float32)
        with Client(address) as client:
            count = 0
            while not stop.is_set():
                count += 1
                try:
                    answer = client.infer("guard", {"x": x}, key=f"{number}.{count}")
                    self.seen.append((answer.model, y_of(answer)))
                    if answer.model == "guard__next":
                        self.know.add(number)
                except MmctlError as error:
                    self.failed.append(str(error))
                time.sleep(PAUSE_S)


def begin(bench: Bench, share: int, kind: str = "canary", **code: object) -> tuple[Code, Code]:
    """What is live, and what a canary or a shadow stands on then."""
    live = bench.code
    candidate = bench.change(**code)
    assert bench.deploy("guard", f"--{kind}", f"{share}%") == 0
    return live, candidate


def test_a_canary_gets_its_share_and_nobody_fails_when_it_comes_and_when_it_is_promoted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    users = Users(bench)
    with users.asking():
        live, candidate = begin(bench, SHARE, shift=2, factor=20)
        right = {"guard": live.answer("guard", 3), "guard__next": candidate.answer("guard", 3)}
        eventually(lambda: len(users.know) == 4)
        users.forget()
        eventually(lambda: len(users.seen) >= REQUESTS)
        answered = users.models()
        assert answered.count("guard__next") / len(answered) == pytest.approx(SHARE / 100, abs=0.06)
        assert all(y == right[model] for model, y in users.seen)
        assert bench.ask("total") == live.answer("total", 3)
        assert bench.ask("scale") == live.factor * 3
        capsys.readouterr()
        assert bench.deploy() == 1
        assert "a canary of `guard` 2 stands" in capsys.readouterr().err
        assert bench.run("status", "embedded", "--compare", "4", "--json") == 0
        found = json.loads(capsys.readouterr().out)["comparison"]
        assert found["since"] == "began"
        assert found["answers"]["differing"] == 4
        assert found["live"]["requests"] > found["candidate"]["requests"] >= SHARE
        assert (found["live"]["failed"], found["candidate"]["failed"]) == (0, 0)
        assert bench.run("promote", "embedded", "--yes") == 0
        eventually(lambda: users.models()[-50:] == ["guard"] * 50)
        users.forget()
        eventually(lambda: len(users.seen) >= 200)
        assert {*users.seen} == {("guard", candidate.answer("guard", 3))}
    assert users.failed == []
    assert bench.deploy() == 0
    assert "nothing to do" in capsys.readouterr().out
    assert bench.answers() == bench.right()


def who_answers(bench: Bench, right: dict[str, float]) -> list[str]:
    """The model that answers each of 40 users, rightly."""
    x = np.full((1, 1), 3, np.float32)
    with Client(bench.info.grpc) as client:
        answers = [client.infer("guard", {"x": x}, key=f"user-{n}") for n in range(40)]
    assert all(y_of(answer) == right[answer.model] for answer in answers)
    return [answer.model for answer in answers]


def test_a_shadow_becomes_a_canary_that_a_killed_server_has_again_until_it_goes(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    live, candidate = begin(bench, 50, "shadow", shift=60)
    right = {"guard": live.answer("guard", 3), "guard__next": candidate.answer("guard", 3)}
    assert {*who_answers(bench, right)} == {"guard"}
    capsys.readouterr()
    assert bench.deploy("guard", "--canary", "50%") == 0
    assert "1 step," in capsys.readouterr().out
    before = who_answers(bench, right)
    assert {*before} == {*right}
    bench.kill()
    bench.serve()
    assert who_answers(bench, right) == before
    capsys.readouterr()
    assert bench.run("status", "embedded", "--json") == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["since"] == "restart"
    assert found["live"]["requests"] == before.count("guard")
    assert found["candidate"]["requests"] == before.count("guard__next")
    users = Users(bench)
    with users.asking(threads=2):
        eventually(lambda: len(users.know) == 2)
        assert bench.rollback() == 0
        eventually(lambda: users.models()[-50:] == ["guard"] * 50)
    assert users.failed == []
    assert all(y == right[model] for model, y in users.seen)
    assert who_answers(bench, right) == ["guard"] * 40
