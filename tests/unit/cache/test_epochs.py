"""Epochs on real stores: who moves them, and when others see it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mmctl.cache.effects import Store, StoreDown, performers
from mmctl.cache.epochs import ALL_MODELS, MAX_AGE_S, UNKNOWN, Epochs, move_epoch
from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore
from mmctl.effects import drive


class Process:
    """What one process knows, with a clock of its own; `asked` counts its round trips."""

    def __init__(self, url: str) -> None:
        self.store, self.now, self.asked = SharedStore(url), 0.0, 0
        self.epochs = Epochs(clock=lambda: self.now)

    def of(self, model: str) -> str:
        return drive(self.epochs.of(model), self.perform)

    def perform(self, effect: Any) -> Any:
        self.asked += isinstance(effect, Store)
        return performers(self.store)[type(effect)](effect)


@pytest.fixture
def url(store: SharedStore, store_url: str) -> str:
    """Of an empty store."""
    return store_url


def test_all_processes_have_the_same_epoch_and_it_stays(url: str) -> None:
    one, two = Process(url), Process(url)
    first = one.of("tag")
    two.now = 1000.0
    assert two.of("tag") == first
    one.now = 1000.0
    assert one.of("tag") == first != UNKNOWN


def test_moving_one_leaves_the_others(url: str) -> None:
    process = Process(url)
    before, other = process.of("tag"), process.of("other")
    move_epoch(url, ["tag"])
    process.now = MAX_AGE_S
    assert process.of("tag") != before
    assert process.of("other") == other


def test_all_models_can_be_moved_at_once(url: str) -> None:
    process = Process(url)
    before = {name: process.of(name) for name in ("tag", "other")}
    move_epoch(url, [ALL_MODELS])
    process.epochs.forget()
    assert all(process.of(name) != epoch for name, epoch in before.items())


def test_a_lost_epoch_never_comes_back(url: str) -> None:
    process = Process(url)
    seen = {process.of("tag")}
    for _ in range(3):
        move_epoch(url, ["tag"])
        process.store.run(("DEL", names.epoch("tag")))
        process.epochs.forget("tag")
        epoch = process.of("tag")
        assert epoch not in seen
        seen.add(epoch)


def test_it_is_asked_for_no_more_often_than_it_must_be(url: str) -> None:
    process = Process(url)
    process.of("tag")
    asked = process.asked
    process.now = MAX_AGE_S * 0.99
    process.of("tag")
    assert process.asked == asked
    process.now = MAX_AGE_S
    process.of("tag")
    assert process.asked == asked + 1


def test_who_listens_is_told_the_models(url: str) -> None:
    import redis

    with redis.Redis.from_url(url, protocol=2) as client, client.pubsub() as listener:
        listener.subscribe(names.EPOCHS)
        listener.get_message(timeout=5.0)
        move_epoch(url, ["b", "a", "a"])
        told = [listener.get_message(timeout=5.0) for _ in range(2)]
    assert [message["data"] for message in told if message] == [b"a", b"b"]


def test_without_an_answer_the_last_one_holds_but_not_for_the_shared_store(url: str) -> None:
    process = Process(url)
    known = process.of("tag")
    assert process.epochs.fresh("tag")
    process.store = SharedStore("redis://127.0.0.1:1/0")
    process.now = 60.0
    assert process.of("tag") == known
    assert not process.epochs.fresh("tag")
    assert process.of("never asked") == UNKNOWN
    assert not process.epochs.fresh("never asked")


def test_moving_in_a_store_that_is_not_there_is_an_error() -> None:
    with pytest.raises(StoreDown, match=r"the store redis://127.0.0.1:1/0 does not answer"):
        move_epoch("redis://:secret@127.0.0.1:1/0", ["tag"])


def test_a_crowd_asks_once(url: str) -> None:
    process = Process(url)
    with ThreadPoolExecutor(50) as pool:
        epochs = list(pool.map(process.of, ["tag"] * 50))
    assert len(set(epochs)) == 1
    assert process.asked == 2  # for what is there, and to begin


def test_while_one_asks_the_others_go_on_with_what_they_know(url: str) -> None:
    process = Process(url)
    known = process.of("tag")
    process.now = MAX_AGE_S
    asking = process.epochs.of("tag")
    next(asking)
    asked = process.asked
    assert process.of("tag") == known
    assert process.asked == asked
    asking.close()
