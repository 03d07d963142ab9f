"""Who does what the core wants done: a thread, or a task of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mmctl.client.effects import Describe, Gather, Infer, Mirror, Next, Open, Seek
from mmctl.client.transport import AsyncServer, Server
from mmctl.effects import Steps, T, adrive, by_type, drive
from mmctl.inference import InferRequest, InferResponse

if TYPE_CHECKING:
    from mmctl.cache.cache import Cache

AT_ONCE = 8
"""So many parts of one call are on their way at the same time."""

MIRRORED_AT_ONCE = 32
"""When so many copies are on their way there are no more of them."""

MIRROR_S = 30.0
"""A copy may take so long where its request has no deadline."""


def _questions(server: Any) -> dict[type, Callable[[Any], Any]]:
    """What a server answers, or lets one await."""
    return {
        Infer: lambda effect: server.infer(effect.request, effect.timeout_s),
        Describe: lambda effect: server.describe(
            effect.model, effect.version, identify=effect.identify, timeout_s=effect.timeout_s
        ),
        Seek: lambda effect: server.candidate(effect.model),
    }


class Threads:
    """Blocks whoever asks. Any number of threads may share it."""

    def __init__(self, server: Server, cache: Cache | None) -> None:
        self._server = server
        rows: dict[type, Callable[[Any], Any]] = {
            **(cache.performers if cache is not None else {}),
            **_questions(server),
            Gather: lambda effect: self._gathered(effect.steps),
            Mirror: self._mirrored,
            Open: lambda effect: server.stream(effect.request, effect.timeout_s),
            Next: lambda effect: next(effect.answers, None),
        }
        self._perform = by_type(rows)
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._mirrored_now = 0

    def do(self, steps: Steps[T]) -> T:
        return drive(steps, self._perform)

    def close(self) -> None:
        """Copies on their way are given up."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _gathered(self, steps: tuple[Steps[Any], ...]) -> list[Any]:
        return list(self._pool("parts", AT_ONCE).map(self._end_of, steps))

    def _end_of(self, steps: Steps[Any]) -> Any:
        try:
            return self.do(steps)
        except Exception as error:  # noqa: BLE001 - it is told among the others
            return error

    def _mirrored(self, effect: Mirror) -> None:
        for request in effect.requests:
            with self._lock:
                if self._mirrored_now >= MIRRORED_AT_ONCE:
                    return
                self._mirrored_now += 1
            with suppress(RuntimeError):  # the client was closed meanwhile
                self._pool("mirror", AT_ONCE).submit(self._copy, request, effect.timeout_s)

    def _copy(self, request: InferRequest, timeout_s: float | None) -> None:
        try:
            self._server.infer(request, timeout_s or MIRROR_S)
        except Exception:  # noqa: BLE001 - nobody waits for it
            return
        finally:
            with self._lock:
                self._mirrored_now -= 1

    def _pool(self, name: str, size: int) -> ThreadPoolExecutor:
        with self._lock:
            if name not in self._pools:
                self._pools[name] = ThreadPoolExecutor(size, f"mmctl-{name}")
            return self._pools[name]


class Tasks:
    """Awaits. The tasks of one event loop may share it."""

    def __init__(self, server: AsyncServer, cache: Cache | None) -> None:
        self._server = server
        rows: dict[type, Callable[[Any], Awaitable[Any]]] = {
            **(cache.async_performers if cache is not None else {}),
            **_questions(server),
            Gather: lambda effect: self._gathered(effect.steps),
            Mirror: self._mirrored,
            Open: self._opened,
            Next: lambda effect: anext(effect.answers, None),
        }
        self._perform = by_type(rows)
        self._copies: set[asyncio.Task[None]] = set()

    async def do(self, steps: Steps[T]) -> T:
        return await adrive(steps, self._perform)

    async def close(self) -> None:
        """Copies on their way are given up."""
        for task in self._copies:
            task.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)

    async def _gathered(self, steps: tuple[Steps[Any], ...]) -> list[Any]:
        free = asyncio.Semaphore(AT_ONCE)

        async def end_of(one: Steps[Any]) -> Any:
            async with free:
                try:
                    return await self.do(one)
                except Exception as error:  # noqa: BLE001 - it is told among the others
                    return error

        return await asyncio.gather(*map(end_of, steps))

    async def _mirrored(self, effect: Mirror) -> None:
        for request in effect.requests:
            if len(self._copies) < MIRRORED_AT_ONCE:
                task = asyncio.create_task(self._copy(request, effect.timeout_s))
                self._copies.add(task)
                task.add_done_callback(self._copies.discard)

    async def _copy(self, request: InferRequest, timeout_s: float | None) -> None:
        with suppress(Exception):  # nobody waits for it
            await self._server.infer(request, timeout_s or MIRROR_S)

    async def _opened(self, effect: Open) -> AsyncGenerator[InferResponse, None]:
        return self._server.stream(effect.request, effect.timeout_s)
