"""Work that is thought out once and done two ways: blocking, or awaited.

`Steps` are a generator that yields what it wants done and is sent what came of it; errors are
raised at its `yield`. It decides, and touches nothing. `drive` does it in a thread, `adrive` in an
event loop; each is given a `perform` that knows every kind of effect in its own way.

    def asked(request: InferRequest) -> Steps[InferResponse]:
        answer: InferResponse = yield Infer(request)
        return answer
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]


def drive(steps: Steps[T], perform: Callable[[Any], Any]) -> T:
    """Do the steps in this thread. Raises what they raise."""
    try:
        effect = next(steps)
        while True:
            try:
                result = perform(effect)
            except BaseException as error:  # noqa: BLE001 - the steps decide what it means
                effect = steps.throw(error)
            else:
                effect = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def adrive(steps: Steps[T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    """Do the steps in this task. Raises what they raise; a cancellation is raised in them too."""
    try:
        effect = next(steps)
        while True:
            try:
                result = await perform(effect)
            except BaseException as error:  # noqa: BLE001 - the steps decide what it means
                effect = steps.throw(error)
            else:
                effect = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def by_type(rows: Mapping[type, Callable[[Any], T]]) -> Callable[[Any], T]:
    """What performs effects from a table by their type, in a thread or in a task."""
    return lambda effect: rows[type(effect)](effect)
