"""One computation for all processes that share a store, on real stores."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mmctl.cache.effects import Pause, performers
from mmctl.cache.lease import LONGEST_PAUSE_S, Leases, Sealed, pause
from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore
from mmctl.effects import Steps, by_type, drive
from mmctl.errors import LateError, WorldError

KEY = b"key"


class Process:
    """What one process has of a store; answers with its name."""

    def __init__(self, name: str, store: SharedStore, *, term_s: float = 5.0) -> None:
        self.name, self.runs = name, 0
        self.store = store
        self.leases = Leases(store, term_s=term_s)

    def one(self, *, seconds: float = 0.0, deadline: float | None = None, **more: Any) -> Any:
        return self.drive(self.steps(seconds=seconds, deadline=deadline, **more))

    def steps(
        self,
        *,
        seconds: float = 0.0,
        deadline: float | None = None,
        fails: Exception | None = None,
        kept: bool = True,
    ) -> Steps[tuple[str, bool]]:
        def compute() -> Steps[str]:
            self.runs += 1
            yield Pause(seconds)
            if fails is not None:
                raise fails
            return self.name

        return self.leases.one(
            KEY,
            compute,
            seal=lambda answer: Sealed(b"+" + answer.encode(), 60_000) if kept else None,
            unseal=lambda raw: raw[1:].decode() if raw.startswith(b"+") else None,
            deadline=deadline,
        )

    def drive(self, steps: Steps[Any]) -> Any:
        return drive(steps, by_type(performers(self.store)))


def holder(store: SharedStore) -> Any:
    return store.run(("GET", names.lease(KEY)))[0]


def wait_until_free(store: SharedStore, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while holder(store) is not None:
        assert time.monotonic() < end, "the lease is still held"
        time.sleep(0.005)


def after(steps: Steps[Any]) -> Steps[Any]:
    """What is left of steps that stand at a pause."""
    effect = steps.send(None)
    while True:
        try:
            effect = steps.send((yield effect))
        except StopIteration as end:
            return end.value


def test_the_first_computes_and_stores_the_others_find_it(store: SharedStore) -> None:
    one, two = Process("one", store), Process("two", store)
    assert one.one() == ("one", False)
    assert two.one() == ("one", True)
    assert two.runs == 0
    assert holder(store) is None


def test_who_comes_while_another_computes_waits_for_its_answer(store: SharedStore) -> None:
    one, two = Process("one", store), Process("two", store)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.one, seconds=0.2)
        time.sleep(0.05)
        began = time.monotonic()
        assert two.one() == ("one", True)
        assert time.monotonic() - began < 0.4
        assert first.result() == ("one", False)


def test_an_answer_that_is_not_kept_leaves_no_lease_behind(store: SharedStore) -> None:
    one, two = Process("one", store), Process("two", store)
    assert one.one(kept=False) == ("one", False)
    assert holder(store) is None
    assert two.one() == ("two", False)


def test_a_lease_of_one_that_failed_is_given_back_at_once(store: SharedStore) -> None:
    one, two = Process("one", store), Process("two", store)
    with pytest.raises(WorldError, match="gone"):
        one.one(fails=WorldError("gone"))
    wait_until_free(store, 2.0)
    assert two.one() == ("two", False)


def test_a_lease_of_steps_that_are_thrown_away_is_given_back_too(store: SharedStore) -> None:
    process = Process("one", store)
    steps = process.steps()
    effect = next(steps)
    assert isinstance(steps.send(performers(store)[type(effect)](effect)), Pause)
    assert holder(store) is not None
    steps.close()
    wait_until_free(store, 2.0)


def test_a_lease_is_kept_up_for_as_long_as_its_holder_computes(store: SharedStore) -> None:
    one, two = Process("one", store, term_s=0.3), Process("two", store, term_s=0.3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.one, seconds=1.0)
        time.sleep(0.05)
        assert two.one() == ("one", True)
        assert first.result() == ("one", False)
    assert two.runs == 0


def test_one_that_lost_its_lease_changes_nothing(store: SharedStore) -> None:
    late, other = Process("late", store), Process("other", store)
    steps = late.steps()
    effect = next(steps)
    steps.send(performers(store)[type(effect)](effect))  # it has the lease, and stands still
    number = int(holder(store))
    store.run(("DEL", names.lease(KEY)))  # which is what its end does
    other_steps = other.steps()
    effect = next(other_steps)
    other_steps.send(performers(store)[type(effect)](effect))
    assert int(holder(store)) > number
    assert late.drive(after(steps)) == ("late", False)
    assert int(holder(store)) > number
    assert store.run(("GET", names.entry(KEY))) == [None]
    other_steps.close()


def test_waiting_for_another_process_ends_with_ones_own_deadline(store: SharedStore) -> None:
    store.run(("SET", names.lease(KEY), 7, "PX", 10_000))
    began = time.monotonic()
    with pytest.raises(LateError):
        Process("one", store).one(deadline=began + 0.1)
    assert time.monotonic() - began < 0.3


def test_what_cannot_be_read_is_computed_and_written_anew(store: SharedStore) -> None:
    store.run(("SET", names.entry(KEY), b"damaged"))
    one, two = Process("one", store), Process("two", store)
    assert one.one() == ("one", False)
    assert two.one() == ("one", True)


def test_who_waits_for_the_end_of_what_cannot_be_read_takes_the_new_answer(
    store: SharedStore,
) -> None:
    store.run(("SET", names.entry(KEY), b"damaged"))
    one, two = Process("one", store), Process("two", store)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(one.one, seconds=0.2)
        time.sleep(0.05)
        assert two.one() == ("one", True)
    assert two.runs == 0


def test_without_a_store_that_answers_everybody_computes() -> None:
    process = Process("one", SharedStore("redis://127.0.0.1:1/0"))
    assert [process.one() for _ in range(5)] == [("one", False)] * 5


def test_its_thread_lives_only_while_there_is_work(store: SharedStore) -> None:
    before = set(threading.enumerate())
    Process("one", store, term_s=0.01).one()
    (thread,) = set(threading.enumerate()) - before
    thread.join(5.0)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("waited_s", "pause_s"),
    [
        pytest.param(0.0, 0.001, id="soon at first"),
        pytest.param(0.1, 0.01, id="then a tenth of what one has waited"),
        pytest.param(60.0, LONGEST_PAUSE_S, id="and never very long"),
    ],
)
def test_the_pause_before_the_next_look(waited_s: float, pause_s: float) -> None:
    assert pause(waited_s) == pytest.approx(pause_s)
