"""The server of a run: it loads one model after the other and answers questions."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from mmctl.client.transport import GrpcTransport
from mmctl.errors import InferenceError, InputError, WorldError
from mmctl.inference import InferRequest
from mmctl.server.control import Refusal
from mmctl.server.log import tidy
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime
from mmctl.trials.runcheck.model import Model, has_types, model_of
from mmctl.trials.runcheck.questions import Fate, Outputs, Question, Reply
from mmctl.trials.runcheck.reasons import dead_process

DEATH_S = 10.0
"""How long a server that no longer answers may take to be seen dead."""

POLL_S = 0.05

SIGNAL = b"Signal ("
"""What Triton writes first when it dies of a signal: it may still answer for a moment then."""

_FRAME = re.compile(r"\s*\d+# .*")
_WHILE = re.compile(r" while it loaded (`[^`]*`(, )?)+")


@dataclass(frozen=True, slots=True)
class Scene:
    """How a server is started: on the copy at `root`, whose models are told of as in `shown`.

    `deadline_s` is for one request, `load_s` for one model to load.
    """

    runtime: Runtime
    root: Path
    shown: str
    state: Path
    complete: bool
    deadline_s: float
    load_s: float


class Stage:
    """A server that starts without models. A context manager; raises WorldError when Triton does
    not start at all.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._server = EmbeddedTriton.start(
            scene.runtime,
            scene.root,
            state=scene.state,
            private=True,
            complete_configs=scene.complete,
            load_all=False,
            cache=False,
            reload_dead=False,
        )
        self._control = self._server.control
        self._transport = GrpcTransport(self._server.grpc)
        self._read = self._server.log.stat().st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._transport.close()
        self._server.stop(at_once=True)

    def load(self, name: str) -> Reply:
        begin = time.monotonic()
        try:
            self._server.load(name, self._scene.load_s)
        except WorldError as error:
            refusal, limit = f"`{name}` does not load: ", self._scene.load_s
            if error.message.startswith(refusal):
                return Reply(Fate.REFUSED, text=self._told(error.message.removeprefix(refusal)))
            if time.monotonic() - begin >= limit:
                return Reply(Fate.LATE, text=f"it is not loaded after {limit:g} s")
            return self._death(error)
        return self._death() if self._struck() else Reply(Fate.ANSWERED)

    def models(self, name: str) -> tuple[Model, ...]:
        """Every version of a model that is ready and can be asked; none when the server is gone."""
        with suppress(Refusal, WorldError):
            ready = [s.version or "" for s in self._control.index() if s.name == name and s.ready]
            several = len(ready) > 1
            configs = {v: self._control.config(name, v) for v in sorted(ready, key=int)}
            return tuple(
                model_of(config, v if several else "")
                for v, config in configs.items()
                if has_types(config)
            )
        return ()

    def ask(self, question: Question) -> Reply:
        reply = self._reply(question)
        return self._death() if not reply.spoils and self._struck() else reply

    def _reply(self, question: Question) -> Reply:
        begin = time.monotonic()
        try:
            return Reply(Fate.ANSWERED, self._answers(question))
        except (InferenceError, InputError) as error:
            text = self._told(str(error))
            return Reply(Fate.PROCESS_DIED if dead_process(text) else Fate.REFUSED, text=text)
        except WorldError as error:
            limit = self._scene.deadline_s
            if time.monotonic() - begin >= limit:
                return Reply(Fate.LATE, text=f"no answer within {limit:g} s")
            return self._death(error)

    def _answers(self, question: Question) -> tuple[Outputs, ...]:
        request = InferRequest(
            question.model,
            question.inputs,
            question.outputs,
            question.version,
            parameters=question.parameters,
        )
        if question.stream:
            answers = tuple(self._transport.stream(request, self._scene.deadline_s))
        else:
            answers = (self._transport.infer(request, self._scene.deadline_s),)
        return tuple(answer.outputs for answer in answers)

    def _struck(self) -> bool:
        """Whether a signal has hit the server, by what its log says since the last time."""
        size = self._server.log.stat().st_size
        if size == self._read:
            return False
        with self._server.log.open("rb") as log:
            log.seek(self._read)
            self._read = size
            return SIGNAL in log.read()

    def _death(self, error: WorldError | None = None) -> Reply:
        """What the server dies of, which shows a moment after `error`, its silence."""
        limit = time.monotonic() + DEATH_S
        while self._server.alive and time.monotonic() < limit:
            time.sleep(POLL_S)
        error = error or WorldError("Triton has stopped")
        if not self._server.alive:
            try:
                self._server.wait()
            except WorldError as death:
                error = death
        lines = [line for line in error.message.splitlines() if not _FRAME.fullmatch(line)]
        text = _WHILE.sub("", "\n".join(lines))
        return Reply(Fate.SERVER_DIED, text=self._told(text), hint=error.hint)

    def _told(self, text: str) -> str:
        """In one line, with the user's own paths and without those of the runtime."""
        own = re.escape(str(self._scene.runtime.root))
        text = re.sub(rf" \({own}/[^)]*\)", "", tidy(text))
        return text.replace(f"{self._scene.root.resolve()}/", f"{self._scene.shown}/")
