"""A shared store that speaks Redis' plain commands: Redis 7 and 8, Valkey 8 and 9.

store = SharedStore("redis://127.0.0.1:6379/0")
value, = store.run(("GET", "name"))
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mmctl.cache.effects import Command, Reply, StoreDown
from mmctl.cache.stores.breaker import Breaker
from mmctl.errors import InputError

if TYPE_CHECKING:
    from redis import ConnectionPool

TIMEOUT_S = 0.25
"""For a connection, and for each read. A store that hangs costs some callers this time, once; on a
machine that is busy beyond measure it must not look as if it hung.
"""

WAITING_THREADS = 8

_URL = re.compile(r"(?P<scheme>redis|rediss|valkey|valkeys|unix)://(?P<rest>.+)")
_SCHEMES = {"valkey": "redis", "valkeys": "rediss"}


class SharedStore:
    """Commands to one store. Threads may share it, and processes after a fork.

    A store that does not answer costs three calls their time; from then on calls fail at once
    while a thread looks now and then whether it is back.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        on_down: Callable[[StoreDown], object] = lambda error: None,
    ) -> None:
        """Connects when it is first asked. `on_down` hears of the first failure after each success.
        Raises InputError for what is no address of a store.
        """
        self._pool = _pool(url, timeout_s)
        self._breaker = Breaker()
        self._on_down = on_down
        self._is_told = False
        self.url = url
        self.shown = shown_url(url)

    @property
    def answers(self) -> bool:
        """Whether it has answered of late; True before it was asked."""
        return self._breaker.closed

    def run(self, *commands: Command) -> list[Reply]:
        """One reply per command, in one round trip. Raises StoreDown; commands that were sent
        before may have been done nevertheless.
        """
        if not self._breaker.closed:
            if self._breaker.probe_is_due():
                threading.Thread(target=self._probe, name="mmctl-store-probe", daemon=True).start()
            raise self._down("it has not answered of late")
        return self._run(commands)

    def close(self) -> None:
        """Drop the connections; it may be asked again."""
        self._pool.disconnect(inuse_connections=False)

    def _run(self, commands: tuple[Command, ...]) -> list[Reply]:
        from redis import RedisError, ResponseError

        try:
            connection: Any = self._pool.get_connection()
            try:
                replies = _ask(connection, commands)
            except BaseException:
                connection.disconnect()  # replies on their way would go to whoever asks next
                raise
            finally:
                self._pool.release(connection)
        except (RedisError, OSError) as error:
            self._breaker.failed()
            down = self._down(str(error))
            if not self._is_told:
                self._is_told = True
                self._on_down(down)
            raise down from error
        self._breaker.succeeded()
        self._is_told = False
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise self._down(str(reply)) from reply
        return replies

    def _probe(self) -> None:
        with suppress(StoreDown):
            self._run((("PING",),))

    def _down(self, reason: str) -> StoreDown:
        return StoreDown(
            f"the store {self.shown} does not answer: {reason}",
            hint="check its address and that it runs; until then answers are not shared",
        )


class AsyncSharedStore:
    """The same store for tasks, of any event loop.

    Threads do the waiting: a command that has begun is done to its end, whatever becomes of its
    task, and a store that hangs holds up no loop.
    """

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._threads = _threads()
        self._pid = os.getpid()

    async def run(self, *commands: Command) -> list[Reply]:
        """As SharedStore.run."""
        if not self._store.answers:
            return self._store.run(*commands)  # fails at once
        if self._pid != os.getpid():  # a fork has copied the threads' names, not the threads
            self._threads, self._pid = _threads(), os.getpid()
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._threads, self._store.run, *commands)
        except RuntimeError as error:  # closed, or this process is about to end
            raise StoreDown(f"the store {self._store.shown} is not asked any more") from error
        return await running

    def close(self) -> None:
        """End its threads; from then on it does not answer."""
        self._threads.shutdown(wait=False)


def shown_url(url: str) -> str:
    """The address without what is secret in it."""
    return re.sub(r"//[^@/]*@", "//", url).partition("?")[0]


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WAITING_THREADS, thread_name_prefix="mmctl-store")


def _pool(url: str, timeout_s: float) -> ConnectionPool:
    from redis import ConnectionPool
    from redis.connection import parse_url

    found = _URL.fullmatch(url)
    try:
        if found is None:
            raise ValueError("unknown scheme")
        scheme = _SCHEMES.get(found["scheme"], found["scheme"])
        said = parse_url(f"{scheme}://{found['rest']}")  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise InputError(
            f"`{shown_url(url)}` is no address of a store: {error}",
            hint="write `redis://HOST:PORT/0`, `rediss://...` for TLS, or `unix:///PATH`",
        ) from None
    timeouts = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    # Replies have one form with every server and client, whatever the address says.
    form = {"protocol": 2, "decode_responses": False}
    return ConnectionPool(**{**timeouts, **said, **form})


def _ask(connection: Any, commands: tuple[Command, ...]) -> list[Reply]:
    """The replies; one that says no is an exception in the list."""
    from redis import ResponseError

    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    replies: list[Reply] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies
