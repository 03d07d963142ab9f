"""Offer a load: send when it is due, note what comes of it. In one thread, by asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mmctl.errors import InferenceError, WorldError
from mmctl.loadtest.record import Recorder

Send = Callable[[int], Awaitable[str]]
"""Sends the n-th request. Gives "" for a right answer, else what is wrong with it. Raises
InferenceError when the server refuses it, WorldError when no answer comes."""
Watch = Callable[[Recorder, int], None]
"""Is told of a load once a second while it runs, with the number of requests in flight."""

GONE_S = 5.0
"""A server from which no answer has come for so long, only failures to reach it, is gone."""
RETRY_S = 0.1
"""So long a caller waits that found nobody: the next refusal would come at once."""
MOST_IN_FLIGHT = 20_000
"""More are not sent: they would only fill the memory of this machine."""
DRAIN_S = 30.0
"""What is not answered so long after the last request has left is given up."""
_FINEST_S = 0.0005
"""asyncio does not sleep for less, and a busy loop would take the CPU of a server beside it."""


class GoneError(Exception):
    """The server has stopped answering; the message says since when."""


@dataclass(slots=True)
class Load:
    """A load under way. `recorder` knows what came of it, also when it is cut short."""

    send: Send
    recorder: Recorder
    watch: Watch = lambda _recorder, _in_flight: None
    wrong: dict[str, int] = field(default_factory=dict)
    """What was wrong with answers, and how often."""
    in_flight: int = 0
    _began: float = 0.0
    _sent: int = 0
    _silent_since: float | None = None

    def begin(self) -> None:
        self._began = time.perf_counter()

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.perf_counter() - self._began

    async def ask(self, due: float) -> None:
        """One request that is due now, or was: its latency counts from `due`."""
        number, self._sent = self._sent, self._sent + 1
        self.in_flight += 1
        self.recorder.sent(due, self.now)
        try:
            wrong = await self.send(number)
        except InferenceError as error:
            self._silent_since = None
            self.recorder.failed(due, error.message)
        except WorldError as error:
            self._silent_since = self.now if self._silent_since is None else self._silent_since
            self.recorder.failed(due, error.message)
        else:
            self._silent_since = None
            self.recorder.answered(due, self.now)
            if wrong:
                self.wrong[wrong] = self.wrong.get(wrong, 0) + 1
        finally:
            self.in_flight -= 1

    def refuse(self, due: float) -> None:
        """A request that is due and is not sent."""
        self.recorder.sent(due, due)
        self.recorder.failed(due, f"not sent: {MOST_IN_FLIGHT} requests were in flight")

    @property
    def is_silent(self) -> bool:
        """Whether the last request found nobody."""
        return self._silent_since is not None

    def check(self) -> None:
        """Raises GoneError."""
        since = self._silent_since
        if since is not None and self.now - since > GONE_S:
            raise GoneError(f"no Triton has answered since second {since:.1f}")


async def send_on_time(load: Load, due_times: Iterator[float]) -> None:
    """Open loop: each request leaves when it is due, whether or not others are answered.

    Raises GoneError, and what `send` raises beside its own errors; what is in flight is given up.
    """
    load.begin()
    tasks: set[asyncio.Task[None]] = set()
    async with _watched(load), _ended(tasks):
        for due in due_times:
            while (early := due - load.now) > _FINEST_S:
                await asyncio.sleep(min(early, 1.0))
                load.check()
            _forget_done(tasks)
            if load.in_flight >= MOST_IN_FLIGHT:
                load.refuse(due)
            else:
                tasks.add(asyncio.create_task(load.ask(due)))
            await asyncio.sleep(0)  # it leaves now, though the next may be due as well
        while tasks and load.now < load.recorder.seconds + DRAIN_S:
            load.check()
            await asyncio.wait(tasks, timeout=1.0)
            _forget_done(tasks)


async def keep_asking(load: Load, callers: int, seconds: float) -> None:
    """Closed loop: each of the callers asks again as soon as it has its answer. Raises as
    `send_on_time`.
    """

    async def call() -> None:
        while load.now < seconds:
            await load.ask(load.now)
            load.check()
            if load.is_silent:
                await asyncio.sleep(RETRY_S)

    load.begin()
    tasks = [asyncio.create_task(call()) for _ in range(callers)]
    async with _watched(load), _ended(tasks):
        await asyncio.gather(*tasks)


def _forget_done(tasks: set[asyncio.Task[None]]) -> None:
    """Raises what one of them has raised: no failure of a request, but of mmctl or the input."""
    for task in [task for task in tasks if task.done()]:
        tasks.discard(task)
        task.result()


@asynccontextmanager
async def _watched(load: Load) -> AsyncIterator[None]:
    async def tell() -> None:
        while True:
            await asyncio.sleep(1.0)
            load.watch(load.recorder, load.in_flight)

    async with _ended([asyncio.create_task(tell())]):
        yield


@asynccontextmanager
async def _ended(tasks: Iterable[asyncio.Task[None]]) -> AsyncIterator[None]:
    """What of the tasks has not ended at the end is cancelled."""
    try:
        yield
    finally:
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
