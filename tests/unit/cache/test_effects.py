"""What a cache asks for, done in a thread and in a task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from mmctl.cache.effects import (
    Await,
    Pause,
    Store,
    StoreDown,
    async_performers,
    performers,
)
from mmctl.cache.stores.redis import AsyncSharedStore, SharedStore


def in_a_thread(effect: Any, store: SharedStore | None = None) -> Any:
    return performers(store)[type(effect)](effect)


def in_a_task(effect: Any, store: SharedStore | None = None) -> Any:
    async def done() -> Any:
        shared = None if store is None else AsyncSharedStore(store)
        try:
            return await async_performers(shared)[type(effect)](effect)
        finally:
            if shared is not None:
                shared.close()

    return asyncio.run(done())


WAYS = pytest.mark.parametrize("done", [in_a_thread, in_a_task])
Done = Callable[..., Any]


@WAYS
def test_a_store_replies_once_per_command(done: Done, store: SharedStore) -> None:
    commands = (("SET", "a", b"\x00\xff"), ("GET", "a"), ("GET", "b"), ("INCR", "n"))
    assert done(Store(commands), store) == [b"OK", b"\x00\xff", None, 1]


@WAYS
def test_no_store_is_one_that_does_not_answer(done: Done) -> None:
    with pytest.raises(StoreDown):
        done(Store((("PING",),)))


@WAYS
def test_a_pause_takes_its_time(done: Done) -> None:
    began = time.monotonic()
    done(Pause(0.02))
    assert time.monotonic() - began >= 0.02


@WAYS
def test_one_waits_for_a_future_of_any_thread_without_touching_its_result(done: Done) -> None:
    future: Future[int] = Future()
    threading.Timer(0.02, future.set_exception, [ValueError("not ours")]).start()
    assert done(Await(future, 5.0)) is True
    assert done(Await(future)) is True


@WAYS
def test_waiting_ends_with_its_time_and_leaves_the_future_to_others(done: Done) -> None:
    future: Future[int] = Future()
    assert done(Await(future, 0.01)) is False
    assert not future.cancelled()
    future.set_result(1)


def test_a_cancelled_task_leaves_the_future_to_others() -> None:
    future: Future[int] = Future()

    async def cancelled() -> None:
        task = asyncio.ensure_future(async_performers(None)[Await](Await(future)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not future.cancelled()
    future.set_result(1)  # its loop has ended: nobody is woken, nothing fails
