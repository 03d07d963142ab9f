"""One computation for all callers of one process, in threads and in tasks at once."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mmctl.cache.effects import Pause, async_performers, performers
from mmctl.cache.flight import Flights
from mmctl.effects import Steps, adrive, by_type, drive
from mmctl.errors import InputError, LateError, WorldError

PERFORM = by_type(performers(None))
ASYNC_PERFORM = by_type(async_performers(None))


def blocking(steps: Steps[Any]) -> Any:
    return drive(steps, PERFORM)


async def awaited(steps: Steps[Any]) -> Any:
    return await adrive(steps, ASYNC_PERFORM)


class Model:
    """Answers with how often it has run; `fails` says how the first runs end instead."""

    def __init__(self, *fails: BaseException, seconds: float = 0.05) -> None:
        self.runs, self._fails, self._seconds = 0, list(fails), seconds

    def compute(self) -> Steps[int]:
        self.runs += 1
        mine = self.runs
        yield Pause(self._seconds)
        if mine <= len(self._fails):
            raise self._fails[mine - 1]
        return mine


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    """What came of each call, errors included; all begin together."""
    barrier = threading.Barrier(count)

    def called() -> Any:
        barrier.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - it is what came of it
            return error

    with ThreadPoolExecutor(count) as pool:
        return [done.result() for done in [pool.submit(called) for _ in range(count)]]


def in_tasks(count: int, call: Callable[[], Steps[Any]]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return await asyncio.gather(
            *(awaited(call()) for _ in range(count)), return_exceptions=True
        )

    return asyncio.run(all_of_them())


def test_2000_tasks_make_one_computation() -> None:
    flights, model = Flights(), Model()
    answers = in_tasks(2000, lambda: flights.one("key", model.compute))
    assert model.runs == 1
    assert sorted(answers) == [(1, False)] + [(1, True)] * 1999


def test_threads_and_tasks_of_several_loops_wait_for_the_same_one() -> None:
    flights, model = Flights(), Model(seconds=0.2)

    def called(way: int) -> Any:
        steps = flights.one("key", model.compute)
        return asyncio.run(awaited(steps)) if way % 2 else blocking(steps)

    ways = iter(range(8))
    answers = in_threads(8, lambda: called(next(ways)))
    assert model.runs == 1
    assert sorted(answers) == [(1, False)] + [(1, True)] * 7


def test_other_keys_and_later_calls_compute_for_themselves() -> None:
    flights, model = Flights(), Model(seconds=0)
    assert [blocking(flights.one(key, model.compute)) for key in ("a", "b", "a")] == [
        (1, False),
        (2, False),
        (3, False),
    ]


def test_those_who_wait_outlive_a_leader_that_is_cancelled() -> None:
    flights, model = Flights(), Model()

    async def called() -> list[Any]:
        tasks = [
            asyncio.ensure_future(awaited(flights.one("key", model.compute))) for _ in range(20)
        ]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    leader, *others = asyncio.run(called())
    assert isinstance(leader, asyncio.CancelledError)
    assert model.runs == 2
    assert sorted(others) == [(2, False)] + [(2, True)] * 18


def test_a_caller_that_is_cancelled_while_it_waits_ends_nothing() -> None:
    flights, model = Flights(), Model()

    async def called() -> list[Any]:
        tasks = [
            asyncio.ensure_future(awaited(flights.one("key", model.compute))) for _ in range(3)
        ]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(called())
    assert model.runs == 1
    assert (answers[0], answers[2]) == ((1, False), (1, True))


def test_a_wrong_request_is_wrong_for_all() -> None:
    flights, model = Flights(), Model(InputError("no such input"))
    answers = in_threads(8, lambda: blocking(flights.one("key", model.compute)))
    assert model.runs == 1
    assert [str(answer) for answer in answers] == ["no such input"] * 8


def test_any_other_failure_is_the_leaders_own_and_one_more_tries() -> None:
    flights, model = Flights(), Model(WorldError("gone"))
    answers = in_threads(8, lambda: blocking(flights.one("key", model.compute)))
    assert model.runs == 2
    assert [str(answer) for answer in answers].count("gone") == 1
    assert [a for a in answers if isinstance(a, tuple)].count((2, True)) == 6


def test_a_model_that_is_down_is_not_asked_by_all_in_turn() -> None:
    flights, model = Flights(), Model(*[WorldError("gone")] * 100)
    answers = in_threads(8, lambda: blocking(flights.one("key", model.compute)))
    assert model.runs == 2
    assert [str(answer) for answer in answers] == ["gone"] * 8


def test_a_leader_whose_time_is_up_hands_over_as_often_as_that_happens() -> None:
    flights, model = Flights(), Model(*[LateError("late")] * 2, seconds=0.03)
    times = iter([0.05, 0.05, 5.0, 5.0, 5.0])

    def call() -> Steps[Any]:
        return flights.one("key", model.compute, deadline=time.monotonic() + next(times))

    answers = in_tasks(5, call)
    assert [str(answer) for answer in answers[:2]] == ["late", "late"]
    assert answers[2:] == [(3, False), (3, True), (3, True)]


def test_waiting_ends_with_ones_own_deadline() -> None:
    flights, model = Flights(), Model(seconds=0.3)
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(blocking, flights.one("key", model.compute))
        time.sleep(0.05)
        began = time.monotonic()
        with pytest.raises(LateError):
            blocking(flights.one("key", model.compute, deadline=began + 0.05))
        assert time.monotonic() - began < 0.2
        assert leader.result() == (1, False)


def test_steps_that_are_thrown_away_hold_up_nobody() -> None:
    flights, model = Flights(), Model(seconds=0)
    steps = flights.one("key", model.compute)
    next(steps)
    steps.close()
    assert blocking(flights.one("key", model.compute)) == (2, False)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_does_not_wait_for_its_parents_leaders() -> None:
    flights, model = Flights(), Model(seconds=0)
    leader = flights.one("key", model.compute)
    next(leader)
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = 0 if blocking(flights.one("key", model.compute)) == (2, False) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leader.close()


def test_a_key_takes_no_room_once_it_is_answered() -> None:
    flights, model = Flights(), Model(seconds=0)
    for key in range(100):
        blocking(flights.one(key, model.compute))
    assert not vars(flights)["_flights"]


def test_a_thread_does_not_wait_for_a_task_that_waits_for_this_thread() -> None:
    """Whoever blocks an event loop gets an answer nevertheless."""
    flights, model = Flights(), Model(seconds=0.2)
    deadline = time.monotonic() + 5

    async def both() -> list[Any]:
        leader = asyncio.create_task(awaited(flights.one("key", model.compute)))
        await asyncio.sleep(0.05)
        blocked = blocking(flights.one("key", model.compute, deadline=deadline))
        return [blocked, await leader]

    assert asyncio.run(both()) == [(2, False), (1, False)]


def test_who_waits_gets_an_error_of_its_own() -> None:
    """One that all share would keep alive what each of them did."""
    flights, model = Flights(), Model(InputError("no", hint="do"))
    told = in_threads(5, lambda: blocking(flights.one("key", model.compute)))
    assert len({id(error) for error in told}) == 5
    assert {(str(error), error.hint) for error in told} == {("no", "do")}


def test_a_leader_whose_event_loop_was_closed_holds_up_nobody() -> None:
    flights, model = Flights(), Model(seconds=60)
    loop = asyncio.new_event_loop()
    loop.create_task(awaited(flights.one("key", model.compute)))  # noqa: RUF006 - it is to be lost
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.set_exception_handler(lambda *_: None)  # of the task that was lost
    loop.close()
    del loop
    gc.collect()
    other = Model(seconds=0)
    steps = flights.one("key", other.compute, deadline=time.monotonic() + 2)
    assert blocking(steps) == (1, False)


def test_ctrl_c_in_a_leader_holds_up_nobody() -> None:
    flights, model = Flights(), Model(KeyboardInterrupt(), seconds=0.3)
    answers: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(blocking, flights.one("key", model.compute))
        time.sleep(0.1)
        answers.append(blocking(flights.one("key", model.compute, deadline=time.monotonic() + 5)))
        with pytest.raises(KeyboardInterrupt):
            leader.result()
    assert answers == [(2, False)]
