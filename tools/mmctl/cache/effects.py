"""What a cache wants done outside of itself, and who does it in a thread or in an event loop.

    found, = yield Store((("GET", name),))      # a list with one reply per command
    yield Pause(0.01)
    done = yield Await(future, 1.5)             # whether the future is done
    answer = yield Infer(request, 1.5)          # of a model on the client's server
    told = yield Describe("embed", "", identify=True)   # which one that is

`performers` and `async_performers` are tables by the type of an effect; a driver adds its own rows.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mmctl.errors import WorldError
from mmctl.inference import InferRequest

Command: TypeAlias = tuple[str | bytes | int | float, ...]
"""A command of Redis and its arguments."""

Reply: TypeAlias = Any
"""bytes, int, None, or a list of these."""


class StoreDown(WorldError):
    """The shared store gives no answer, or says no. Whoever asks goes on without it."""


@dataclass(frozen=True, slots=True)
class Store:
    """Ask the shared store, all commands in one round trip: a list of replies, or StoreDown."""

    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until a future is done, `timeout_s` at most: whether it is. Its result is not touched,
    and it is never cancelled: others wait for it too. `thread` brings it: that one must not block.
    """

    future: Future[Any]
    timeout_s: float | None = None
    thread: int | None = None


@dataclass(frozen=True, slots=True)
class Infer:
    """Send a request and wait for its answer, an InferResponse. The client does it."""

    request: InferRequest
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Describe:
    """Ask what a model is; to `identify` it, also which version answers. The client does it: a
    client.description.Description.
    """

    model: str
    version: str
    identify: bool
    timeout_s: float | None = None


class Asked(Protocol):
    """A shared store as effects see it: one method."""

    def run(self, *commands: Command) -> list[Reply]: ...


class AsyncAsked(Protocol):
    """The same, awaited."""

    async def run(self, *commands: Command) -> list[Reply]: ...


def performers(store: Asked | None) -> Mapping[type, Callable[[Any], Any]]:
    """How a thread does each effect. Without a store there is none that answers."""
    return {
        Store: lambda effect: _present(store).run(*effect.commands),
        Pause: lambda effect: time.sleep(effect.seconds),
        Await: _waited,
    }


def async_performers(store: AsyncAsked | None) -> Mapping[type, Callable[[Any], Awaitable[Any]]]:
    """How a task does each effect."""
    return {
        Store: lambda effect: _present(store).run(*effect.commands),
        Pause: lambda effect: asyncio.sleep(effect.seconds),
        Await: lambda effect: _is_done(effect.future, effect.timeout_s),
    }


def _waited(effect: Await) -> bool:
    if effect.thread == threading.get_ident():
        return effect.future.done()  # a task of this thread's event loop is to do it
    return bool(wait([effect.future], effect.timeout_s).done)


async def _is_done(future: Future[Any], timeout_s: float | None) -> bool:
    """asyncio.wrap_future would cancel `future` together with whoever waits."""
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop of one who waits no more may have ended
            loop.call_soon_threadsafe(woken.set)

    future.add_done_callback(wake)
    with suppress(TimeoutError):
        await asyncio.wait_for(woken.wait(), timeout_s)
    return future.done()


def _present(store: Any) -> Any:
    if store is None:
        raise StoreDown("no shared store is set")
    return store
