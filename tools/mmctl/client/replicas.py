"""Several Tritons that serve the same models, as one: who is gone is passed over, at once.

The rules are thought out once (`Rules`); Replicas does them in threads, AsyncReplicas in asyncio.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Generic, Self

from mmctl.client.description import Candidacy, Description
from mmctl.client.retries import RETRIES, Budget, Retries
from mmctl.client.roster import Roster
from mmctl.client.status import NobodyThereError
from mmctl.client.tls import Tls, parse_url
from mmctl.client.transport import (
    AsyncGrpcTransport,
    AsyncServer,
    GrpcTransport,
    Server,
)
from mmctl.effects import Steps, T, adrive, drive
from mmctl.errors import InputError, WorldError
from mmctl.inference import InferRequest, InferResponse

PROBE_S = 1.0
"""A replica that is back says within this time that it is ready."""


@dataclass(frozen=True, slots=True)
class Send:
    """Ask this replica; `left_s` is what is left of the request's time."""

    number: int
    left_s: float | None


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether this replica is ready. Raises WorldError where nobody says so within `limit_s`."""

    number: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


class _NotBackError(WorldError):
    """A replica that was gone is not ready yet."""


class Rules:
    """Who is asked, in which order, how often. Yields Send, Probe and Pause."""

    def __init__(
        self,
        count: int,
        retries: Retries = RETRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.roster = Roster(count, clock)
        self._count = count
        self._budget = Budget(retries)
        self._clock = clock

    def ask(self, timeout_s: float | None = None) -> Steps[Any]:
        """What the first replica that is there says, an error of its own too. The model may see
        a request twice, when a server dies under it. Raises NobodyThereError within a bounded time.
        """
        until = None if timeout_s is None else self._clock() + timeout_s
        self._budget.earn()
        rounds = 0
        while True:
            rounds += 1
            try:
                return (yield from self._round(until))
            except NobodyThereError:
                pause = self._budget.pause(rounds, self._left(until))
                if pause is None:
                    raise
            yield Pause(pause)

    def ask_home(self, request: InferRequest, timeout_s: float | None) -> Steps[Any]:
        """A request of a sequence: to the replica that has its state, and to no other. Only one
        that begins it may go elsewhere, and only where it surely did not run.
        """
        sequence = request.parameters["sequence_id"]
        number = self.roster.home_of(sequence)
        tried: set[int] = set()
        begins = bool(request.parameters.get("sequence_start"))
        while True:
            tried.add(number)
            try:
                answer = yield from self._sent(number, timeout_s)
            except NobodyThereError as error:
                choice = self.roster.choose(tried)
                if not begins:
                    raise _lost(error) from error
                if error.may_have_run or choice is None:
                    raise
                number = choice.number
                continue
            if request.parameters.get("sequence_end"):
                self.roster.leave(sequence)
            elif begins:
                self.roster.settle(sequence, number)
            return answer

    def _round(self, until: float | None) -> Steps[Any]:
        """Each replica once at most. Raises one error for all."""
        if self._count == 1:  # nobody to choose from
            answer = yield Send(0, self._left(until))
            return answer
        tried: set[int] = set()
        errors: list[WorldError] = []
        while (choice := self.roster.choose(tried)) is not None:
            tried.add(choice.number)
            left = self._left(until)
            if errors and left is not None and left <= 0:
                break
            try:
                if choice.probe:
                    yield from self._probed(choice.number, left)
                return (yield from self._sent(choice.number, self._left(until)))
            except (NobodyThereError, _NotBackError) as error:
                errors.append(error)
        raise _none_of(self._count, errors)

    def _probed(self, number: int, left: float | None) -> Steps[None]:
        """Raises _NotBackError where it is not ready."""
        try:
            ready = yield Probe(number, PROBE_S if left is None else min(PROBE_S, left))
        except WorldError as error:
            self.roster.still_gone(number)
            raise _NotBackError(error.message, hint=error.hint) from error
        if not ready:
            self.roster.still_gone(number)
            raise _NotBackError("a server says that it is not ready", hint="read its log")
        self.roster.here(number)

    def _sent(self, number: int, left: float | None) -> Steps[Any]:
        with self.roster.busy(number):
            try:
                answer = yield Send(number, left)
            except NobodyThereError:
                self.roster.gone(number)
                raise
        self.roster.here(number)
        return answer

    def _left(self, until: float | None) -> float | None:
        return None if until is None else round(until - self._clock(), 3)


def _none_of(count: int, errors: Sequence[WorldError]) -> WorldError:
    if count == 1:
        return errors[0]
    return NobodyThereError(
        f"none of {count} servers answers: {'; '.join(error.message for error in errors)}",
        hint=errors[-1].hint,
        may_have_run=any(
            isinstance(error, NobodyThereError) and error.may_have_run for error in errors
        ),
    )


def _lost(error: NobodyThereError) -> NobodyThereError:
    return NobodyThereError(
        f"{error.message}; the sequence was there, and its state is lost",
        hint="begin the sequence again",
        may_have_run=error.may_have_run,
    )


class Replicas:
    """Server: any number of them, as one. Threads may share it; so that a request can be sent
    again, each is asked with the time that is left of it.
    """

    def __init__(self, servers: Sequence[Server], retries: Retries = RETRIES) -> None:
        self._servers = tuple(servers)
        self._rules = Rules(len(self._servers), retries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        def ask(server: Server, left_s: float | None) -> InferResponse:
            return server.infer(request, left_s)

        return self._drive(_steps_for(self._rules, request, timeout_s), ask)

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> Iterator[InferResponse]:
        """Once the first answer is here, no other replica is asked."""

        def ask(server: Server, left_s: float | None) -> _Opened[Iterator[InferResponse]]:
            answers = server.stream(request, left_s)
            first = next(answers, None)
            return _Opened(self._servers.index(server), first, answers)

        opened = self._drive(_steps_for(self._rules, request, timeout_s), ask)
        with self._rules.roster.busy(opened.number):
            if opened.first is not None:
                yield opened.first
                yield from opened.rest

    def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        def ask(server: Server, left_s: float | None) -> Description:
            return server.describe(model, version, identify=identify, timeout_s=left_s)

        return self._drive(self._rules.ask(timeout_s), ask)

    def candidate(self, model: str) -> Candidacy:
        return self._drive(self._rules.ask(), lambda server, _: server.candidate(model))

    def ready(self, timeout_s: float | None = None) -> bool:
        """Whether one of them is."""
        return self._drive(self._rules.ask(timeout_s), lambda server, left: server.ready(left))

    def _drive(self, steps: Steps[Any], ask: Callable[[Server, float | None], T]) -> T:
        def perform(effect: Send | Probe | Pause) -> object:
            match effect:
                case Send(number, left_s):
                    return ask(self._servers[number], left_s)
                case Probe(number, limit_s):
                    return self._servers[number].ready(limit_s)
                case Pause(seconds):
                    time.sleep(seconds)
                    return None

        answer: T = drive(steps, perform)
        return answer


class AsyncReplicas:
    """AsyncServer: the same, awaited."""

    def __init__(self, servers: Sequence[AsyncServer], retries: Retries = RETRIES) -> None:
        self._servers = tuple(servers)
        self._rules = Rules(len(self._servers), retries)

    async def close(self) -> None:
        for server in self._servers:
            await server.close()

    async def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        async def ask(server: AsyncServer, left_s: float | None) -> InferResponse:
            return await server.infer(request, left_s)

        return await self._drive(_steps_for(self._rules, request, timeout_s), ask)

    async def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        async def ask(
            server: AsyncServer, left_s: float | None
        ) -> _Opened[AsyncGenerator[InferResponse, None]]:
            answers = server.stream(request, left_s)
            first = await anext(answers, None)
            return _Opened(self._servers.index(server), first, answers)

        opened = await self._drive(_steps_for(self._rules, request, timeout_s), ask)
        with self._rules.roster.busy(opened.number):
            try:
                if opened.first is not None:
                    yield opened.first
                    async for answer in opened.rest:
                        yield answer
            finally:
                await opened.rest.aclose()  # `async for` leaves it open when its reader goes

    async def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        async def ask(server: AsyncServer, left_s: float | None) -> Description:
            return await server.describe(model, version, identify=identify, timeout_s=left_s)

        return await self._drive(self._rules.ask(timeout_s), ask)

    async def candidate(self, model: str) -> Candidacy:
        return await self._drive(self._rules.ask(), lambda server, _: server.candidate(model))

    async def ready(self, timeout_s: float | None = None) -> bool:
        return await self._drive(
            self._rules.ask(timeout_s), lambda server, left: server.ready(left)
        )

    async def _drive(
        self, steps: Steps[Any], ask: Callable[[AsyncServer, float | None], Awaitable[T]]
    ) -> T:
        async def perform(effect: Send | Probe | Pause) -> object:
            match effect:
                case Send(number, left_s):
                    return await ask(self._servers[number], left_s)
                case Probe(number, limit_s):
                    return await self._servers[number].ready(limit_s)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                    return None

        answer: T = await adrive(steps, perform)
        return answer


@dataclass(frozen=True, slots=True)
class _Opened(Generic[T]):
    """A stream whose first answer is here; None where it had none."""

    number: int
    first: InferResponse | None
    rest: T


def _steps_for(rules: Rules, request: InferRequest, timeout_s: float | None) -> Steps[Any]:
    if request.parameters.get("sequence_id"):
        return rules.ask_home(request, timeout_s)
    return rules.ask(timeout_s)


def open_server(
    urls: str | Sequence[str],
    headers: Mapping[str, str] | None = None,
    tls: Tls | None = None,
    retries: Retries = RETRIES,
) -> Replicas:
    """The Triton at a URL, or several that serve the same. See `parse_url` for the forms."""
    return Replicas([_opened(url, headers, tls) for url in _distinct(urls)], retries)


def open_async_server(
    urls: str | Sequence[str],
    headers: Mapping[str, str] | None = None,
    tls: Tls | None = None,
    retries: Retries = RETRIES,
) -> AsyncReplicas:
    """The same for asyncio. Call it inside the event loop that it serves."""
    return AsyncReplicas([_opened_async(url, headers, tls) for url in _distinct(urls)], retries)


def _opened(url: str, headers: Mapping[str, str] | None, tls: Tls | None) -> Server:
    if parse_url(url, tls).protocol == "http":
        from mmctl.client.http import HttpTransport

        return HttpTransport(url, headers, tls)
    return GrpcTransport(url, headers, tls)


def _opened_async(url: str, headers: Mapping[str, str] | None, tls: Tls | None) -> AsyncServer:
    if parse_url(url, tls).protocol == "http":
        from mmctl.client.http import AsyncHttpTransport

        return AsyncHttpTransport(url, headers, tls)
    return AsyncGrpcTransport(url, headers, tls)


def _distinct(urls: str | Sequence[str]) -> tuple[str, ...]:
    given = (urls,) if isinstance(urls, str) else tuple(dict.fromkeys(urls))
    if not given:
        raise InputError("no address is given", hint="write `host:port` of at least one Triton")
    return given
