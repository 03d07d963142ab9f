"""A workspace whose answers tell which versions gave them, and clients that never pause."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from clocks import eventually

from mmctl.cli.app import main
from mmctl.client import Client
from mmctl.client.tls import Tls
from mmctl.deploy.deployment import carry_out, open_place, plan_forward
from mmctl.errors import MmctlError
from mmctl.server.info import ServerInfo, read_server
from mmctl.server.supervisor import children_of, has_ended
from mmctl.workspace import Workspace, read_workspace

SCALE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x * FACTOR)]))
        return answers
"""

SCALE_YAML = """
source: {python: model.py}
inputs: {x: fp32}
outputs: {y: fp32}
batching: {max_batch: 8}
response_cache: true
"""

TOTAL = """
pipeline: total
inputs: {x: fp32}
nodes:
  shift: {step: shift, inputs: {x: x}, outputs: {OUT: fp32}}
  scale: {model: scale, inputs: {x: shift.OUT}}
outputs: {y: scale.y}
"""

GUARD = """
pipeline: guard
inputs: {x: fp32}
nodes:
  total: {model: total, inputs: {x: x}, timeout_ms: 20000}
  scale: {model: scale, inputs: {x: x}, timeout_ms: 20000}
  join: {step: join_up, inputs: {a: total.y, b: scale.y}, outputs: {y: fp32, more: NOTE}}
outputs: {y: join.y, more: join.more}
"""

SIDE = """
pipeline: side
inputs: {x: fp32}
nodes:
  scale: {model: scale, inputs: {x: x}}
outputs: {y: scale.y}
"""


@dataclass(frozen=True, slots=True)
class Code:
    """What the sources say now. `out` names an output of a step, `note` is the type of another,
    `more` is an output of `guard`; with `bls` `total` is no ensemble.
    """

    factor: int = 10
    shift: int = 1
    weight: int = 100
    out: str = "x"
    more: bool = False
    note: str = "fp32"
    bls: bool = False

    def answer(self, pipeline: str, x: float) -> float:
        total = (x + self.shift) * self.factor
        single = x * self.factor
        return {"total": total, "side": single, "guard": total + single * self.weight}[pipeline]


@dataclass
class Bench:
    """`total` is an ensemble; `guard`, in the bls form, calls it; both call `scale`, whose answers
    Triton caches. With `alone` there is no `guard`.
    """

    root: Path
    alone: bool = False
    code: Code = field(default_factory=Code)

    @property
    def space(self) -> Workspace:
        return read_workspace(self.root)

    @property
    def pipelines(self) -> tuple[str, ...]:
        return ("total",) if self.alone else ("total", "guard")

    @property
    def info(self) -> ServerInfo:
        info = read_server(self.root / ".mmctl")
        assert info is not None, "no server runs"
        return info

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))

    def change(self, **code: object) -> Code:
        """Other code for a model or a step, and golden requests for it; built."""
        self.code = replace(self.code, **code)  # type: ignore[arg-type]
        now = self.code
        self.put("mmctl.yaml", "targets: {}\n")
        self.put("model_repository/scale/model.yaml", SCALE_YAML)
        factor = f"np.float32({now.factor})"
        self.put("model_repository/scale/model.py", SCALE.replace("FACTOR", factor))
        self.put("ensembles/total/pipeline.yaml", self._total())
        step = f"def shift(x):\n    return {{'{now.out}': x + {now.shift}}}\n"
        self.put("ensembles/total/steps.py", step)
        if not self.alone:
            text = GUARD if now.more else GUARD.replace(", more: join.more", "")
            text = text.replace("NOTE", now.note)
            kind = {"fp32": "float32"}.get(now.note, now.note)
            self.put("ensembles/guard/pipeline.yaml", text)
            self.put(
                "ensembles/guard/steps.py",
                "def join_up(a, b):\n"
                f"    return {{'y': a + b * {now.weight}, 'more': a.astype('{kind}')}}\n",
            )
        for name in self.pipelines:
            self.sample(name, now.answer(name, 2))
        self.build()
        return now

    def _total(self) -> str:
        text = TOTAL.replace("OUT", self.code.out)
        if self.code.bls:
            text = text.replace("{model: scale,", "{model: scale, timeout_ms: 20000,")
        return text

    def sample(self, pipeline: str, y: float) -> None:
        text = json.dumps({"inputs": {"x": 2}, "expect": {"y": y}})
        self.put(f"ensembles/{pipeline}/samples/two.json", text)

    def add_side(self) -> None:
        """Another pipeline that calls `scale`."""
        self.put("ensembles/side/pipeline.yaml", SIDE)

    def run(self, *words: str) -> int:
        return main(["-C", str(self.root), *words])

    def build(self) -> None:
        assert self.run("build") == 0

    def serve(self, *words: str) -> None:
        ports = ("--http=0", "--grpc=0", "--metrics=0")
        assert self.run("serve", "--detach", *ports, *words) == 0

    def stop(self) -> None:
        if read_server(self.root / ".mmctl"):
            assert self.run("stop") == 0

    def kill(self) -> None:
        """The server dies of SIGKILL, and all that watched it ends."""
        supervisor = self.info.pid
        os.kill(children_of(supervisor)[0], signal.SIGKILL)
        eventually(lambda: has_ended(supervisor))

    def deploy(self, *names: str) -> int:
        return self.run("deploy", "embedded", *names, "--yes")

    def rollback(self, *words: str) -> int:
        return self.run("rollback", "embedded", *words, "--yes")

    def ask(self, pipeline: str, x: float = 3) -> float:
        with Client(self.info.grpc) as client:
            answer = client.infer(pipeline, {"x": np.full((1, 1), x, np.float32)})
        return float(answer.outputs["y"].ravel()[0])

    def answers(self) -> dict[str, float]:
        return {name: self.ask(name) for name in self.pipelines}

    def right(self, code: Code | None = None) -> dict[str, float]:
        """The answers that this code gives; that of now by default."""
        return {name: (code or self.code).answer(name, 3) for name in self.pipelines}


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer, and between which moments it was made."""

    pipeline: str
    x: int
    y: float
    asked_s: float
    came_s: float


@dataclass
class Crowd:
    """Clients that never pause, or as long as is said. `epochs` are the versions that were live,
    from when until when. They ask at `addresses` in turn, by default the bench's own server.
    """

    bench: Bench
    pause_s: float = 0.0
    addresses: tuple[str, ...] = ()
    tls: Tls | None = None
    seen: list[Seen] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    epochs: list[tuple[Code, float, float]] = field(default_factory=list)

    @contextmanager
    def asking(self, threads: int = 8) -> Iterator[None]:
        self.epochs = [(self.bench.code, 0.0, float("inf"))]
        stop = threading.Event()
        addresses = self.addresses or (self.bench.info.grpc,)
        workers = [
            threading.Thread(
                target=self._ask, args=(stop, addresses[number // 2 % len(addresses)], number)
            )
            for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            stop.set()
            for worker in workers:
                worker.join(60)

    def move(self, action: Callable[[], int], code: Code) -> None:
        """Do what makes `code` live: while it is done both answer, then the new one alone."""
        begin = time.monotonic()
        assert action() == 0
        old, since, _ = self.epochs[-1]
        self.epochs[-1] = (old, since, time.monotonic())
        self.epochs.append((code, begin, float("inf")))

    @property
    def stale(self) -> list[Seen]:
        """Answers that no version gave which was live meanwhile."""
        return [seen for seen in self.seen if not self._is_right(seen)]

    def _is_right(self, seen: Seen) -> bool:
        return any(
            seen.y == code.answer(seen.pipeline, seen.x)
            for code, since, until in self.epochs
            if seen.asked_s <= until and seen.came_s >= since
        )

    def _ask(self, stop: threading.Event, address: str, number: int) -> None:
        pipeline = self.bench.pipelines[number % len(self.bench.pipelines)]
        with Client(address, tls=self.tls) as client:
            x = number
            while not stop.is_set():
                x = x % 50 + 1
                begin = time.monotonic()
                try:
                    answer = client.infer(pipeline, {"x": np.full((1, 1), x, np.float32)})
                    y = float(answer.outputs["y"].ravel()[0])
                    self.seen.append(Seen(pipeline, x, y, begin, time.monotonic()))
                except MmctlError as error:
                    self.failed.append(f"{pipeline}: {error}")
                time.sleep(self.pause_s)


def deploy_and_die(root: str, seam: int, runtime: Mapping[str, str]) -> None:
    """What a process does that is to be killed: it deploys, and dies at this seam."""
    os.environ.update(runtime)
    passed = 0

    def die(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == seam:
            os.kill(os.getpid(), signal.SIGKILL)

    space = read_workspace(Path(root))
    with open_place(space, "embedded", lambda _: None) as place:
        deployment = plan_forward(place, [], lambda _: None)
        carry_out(place, deployment, lambda _: None, die)
