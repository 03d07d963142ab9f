"""Work that is thought out once and done two ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mmctl.effects import Steps, adrive, drive


def doubled(number: int) -> Steps[int]:
    """Asks until it is answered."""
    while True:
        try:
            answer: int = yield number
        except LookupError:
            number += 1
            continue
        return answer * 2


def blocking(steps: Steps[int], perform: Callable[[Any], Any]) -> int:
    return drive(steps, perform)


def awaited(steps: Steps[int], perform: Callable[[Any], Any]) -> int:
    async def performed(effect: Any) -> Any:
        return perform(effect)

    return asyncio.run(adrive(steps, performed))


DRIVERS = pytest.mark.parametrize("driven", [blocking, awaited])


@DRIVERS
def test_the_steps_are_sent_what_came_of_an_effect(driven: Any) -> None:
    assert driven(doubled(3), lambda number: number + 1) == 8


@DRIVERS
def test_an_error_is_raised_in_the_steps_which_may_go_on(driven: Any) -> None:
    def perform(number: int) -> int:
        if number < 5:
            raise LookupError
        return number

    assert driven(doubled(3), perform) == 10


@DRIVERS
def test_an_error_that_the_steps_do_not_take_ends_them(driven: Any) -> None:
    def perform(number: int) -> int:
        raise ValueError("no")

    steps = doubled(3)
    with pytest.raises(ValueError, match="no"):
        driven(steps, perform)
    assert steps.gi_frame is None


def test_a_cancellation_reaches_the_steps() -> None:
    seen = []

    def watching() -> Steps[None]:
        try:
            yield 1
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def cancelled() -> None:
        task = asyncio.create_task(adrive(watching(), asyncio.sleep))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert seen == ["cancelled"]
