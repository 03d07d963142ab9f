"""A shared store as the rest of the cache sees it: replies, or StoreDown."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mmctl.cache.effects import StoreDown
from mmctl.cache.stores.breaker import FAILURES
from mmctl.cache.stores.redis import AsyncSharedStore, SharedStore, shown_url
from mmctl.errors import InputError

NOBODY = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("127.0.0.1:6379", id="no scheme"),
        pytest.param("http://127.0.0.1:6379", id="another scheme"),
        pytest.param("redis://", id="nothing behind the scheme"),
        pytest.param("redis://127.0.0.1:port/0", id="a port that is no number"),
    ],
)
def test_what_is_no_address_of_a_store_is_said_so(url: str) -> None:
    with pytest.raises(InputError, match="is no address of a store"):
        SharedStore(url)


def test_a_password_is_never_shown() -> None:
    url = "rediss://user:pa55word@cache.example:6380/2?ssl_cert_reqs=none"
    assert shown_url(url) == "rediss://cache.example:6380/2"
    with pytest.raises(StoreDown) as down:
        SharedStore("redis://:pa55word@127.0.0.1:1/0").run(("PING",))
    assert "pa55word" not in str(down.value)


def test_a_wrong_password_is_a_store_that_does_not_answer(store_url: str) -> None:
    host = store_url.rpartition("@")[2]
    with pytest.raises(StoreDown):
        SharedStore(f"redis://:wrong@{host}").run(("PING",))
    with pytest.raises(StoreDown):
        SharedStore(f"redis://{host}").run(("PING",))


@pytest.mark.parametrize("more", ["?protocol=3", "?decode_responses=true"])
def test_an_address_does_not_change_the_form_of_replies(more: str, store_url: str) -> None:
    store = SharedStore(store_url + more)
    assert store.run(("HSET", "hash", "a", 1), ("HGETALL", "hash"))[1] == [b"a", b"1"]
    store.run(("DEL", "hash"))


def test_valkeys_own_scheme_is_known(store_url: str) -> None:
    assert SharedStore(store_url.replace("redis:", "valkey:")).run(("PING",)) == [b"PONG"]


def test_a_store_that_is_not_there_fails_at_once_after_three_calls() -> None:
    store = SharedStore(NOBODY)
    for _ in range(FAILURES):
        assert store.answers
        with pytest.raises(StoreDown, match="refused"):
            store.run(("PING",))
    assert not store.answers
    began = time.perf_counter()
    for _ in range(1000):
        with pytest.raises(StoreDown, match="of late"):
            store.run(("PING",))
    assert time.perf_counter() - began < 1.0


def test_a_store_that_says_nothing_costs_its_time_and_no_more() -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = SharedStore(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout_s=0.05)
        began = time.monotonic()
        with pytest.raises(StoreDown):
            store.run(("PING",))
        assert time.monotonic() - began < 0.5


def test_threads_get_their_own_replies(store: SharedStore) -> None:
    def echo(number: int) -> bool:
        text = b"%d" % number * 100
        return store.run(("SET", number, text), ("GET", number)) == [b"OK", text]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(echo, range(500)))


def test_tasks_of_one_loop_after_another_get_their_own_replies(store: SharedStore) -> None:
    shared = AsyncSharedStore(store)

    async def echo(number: int) -> bool:
        return await shared.run(("SET", number, number), ("GET", number)) == [
            b"OK",
            b"%d" % number,
        ]

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*map(echo, range(200)))

    for _ in range(3):
        assert all(asyncio.run(all_of_them()))
    shared.close()


def test_a_task_that_is_cancelled_leaves_no_reply_to_others(store: SharedStore) -> None:
    shared = AsyncSharedStore(store)
    store.run(("SET", "a", "right"), ("SET", "b", "wrong"))

    async def cancelled() -> None:
        for _ in range(50):
            task = asyncio.ensure_future(shared.run(("GET", "b")))
            await asyncio.sleep(0)
            task.cancel()
            assert await shared.run(("GET", "a")) == [b"right"]

    asyncio.run(cancelled())
    shared.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_has_connections_of_its_own(store: SharedStore) -> None:
    shared = AsyncSharedStore(store)
    store.run(("SET", "a", "parent"))
    assert asyncio.run(shared.run(("GET", "a"))) == [b"parent"]
    if (child := os.fork()) == 0:
        code = 1
        try:
            same = asyncio.run(shared.run(("GET", "a"))) == store.run(("GET", "a"))
            code = 0 if same else 1
        finally:
            os._exit(code)
    assert [store.run(("GET", "a")) for _ in range(100)] == [[b"parent"]] * 100
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    shared.close()
