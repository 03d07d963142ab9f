"""What a client does with a call, thought out once for threads and for asyncio.

It yields what it wants done (client/effects.py, and cache/effects.py where a cache is attached) and
decides everything else: what a model is, which values it takes, who answers, in how many requests.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mmctl.client.answers import result_of
from mmctl.client.batches import joined, parts_of, same_version
from mmctl.client.canary import Canaries
from mmctl.client.description import NO_CANDIDATE, Description
from mmctl.client.effects import Describe, Gather, Infer, Mirror, Next, Open, Seek
from mmctl.client.requests import request_for
from mmctl.client.status import NotServedError
from mmctl.effects import Steps, T
from mmctl.errors import InferenceError, InputError, LateError, MmctlError
from mmctl.inference import (
    NOT_CACHED,
    CacheNote,
    InferRequest,
    InferResponse,
    InferResult,
)

if TYPE_CHECKING:
    from mmctl.cache.cache import Cache

SOON_S = 0.5
"""With a cache, one caller asks again who a model is when that is known for so long."""

STALE_S = 1.0
"""And nobody goes on without having asked when it is known for so long."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as its caller wrote it. The names are those of Client.infer."""

    model: str
    inputs: Mapping[str, object]
    outputs: Sequence[str] = ()
    version: str = ""
    timeout_s: float | None = None
    request_id: str = ""
    key: str | bytes = ""
    parameters: Mapping[str, str | int | bool] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    no_store: bool = False
    tenant: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Answers on their way: `answers` is what the server's `stream` gave, `first` is here."""

    call: Call
    told: Description
    answers: Any
    first: list[InferResponse] = field(default_factory=list)


class Core:
    """What a client knows of its server, and its decisions. Threads and tasks may share it."""

    def __init__(
        self,
        cache: Cache | None = None,
        clock: Callable[[], float] = time.monotonic,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are those that go with every request by themselves."""
        self.canaries = Canaries(clock)
        self._cache = cache
        self._headers = headers or {}
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[Description, float]] = {}
        self._due: dict[tuple[str, str], float] = {}
        self._warned: set[str] = set()

    def infer(self, call: Call) -> Steps[InferResult]:
        """The answer to a call. See Client.infer for what it raises."""
        return _on_time(call, self._inferred(call))

    def _inferred(self, call: Call) -> Steps[InferResult]:
        until = _Until(call.timeout_s, self._clock)
        told, request = yield from self._made(call, until, splits=True)
        _refuse_streams(told, call)
        _refuse_orphans(told, call)

        def ask(asked: InferRequest) -> Steps[tuple[InferResponse, CacheNote]]:
            about = told
            if asked is not request:
                about = yield from self._about_candidate(asked, told, until)
            return (yield from self._cached(call, asked, about, until))

        response, note = yield from self._from_one_of_two(call, request, ask)
        return result_of(response, note, told.signature)

    def describe(self, model: str, version: str = "") -> Steps[Description]:
        """What the server says now."""
        told = yield from self._described(model, version, None)
        return told

    def stream(self, call: Call) -> Steps[Stream]:
        """Opens a stream and waits for its first answer."""
        return _on_time(call, self._streamed(call))

    def _streamed(self, call: Call) -> Steps[Stream]:
        until = _Until(call.timeout_s, self._clock)
        told, request = yield from self._made(call, until, splits=False)
        _refuse_orphans(told, call)

        def ask(asked: InferRequest) -> Steps[Stream]:
            return self._opened(call, asked, told, until)

        return (yield from self._from_one_of_two(call, request, ask))

    def following(self, stream: Stream) -> Steps[InferResult | None]:
        """The next answer of a stream; None after the last."""
        return _on_time(stream.call, self._followed(stream))

    def _followed(self, stream: Stream) -> Steps[InferResult | None]:
        if stream.first:
            response: InferResponse | None = stream.first.pop()
        else:
            response = yield Next(stream.answers)
        if response is None:
            return None
        return result_of(response, NOT_CACHED, stream.told.signature)

    def _opened(
        self, call: Call, request: InferRequest, told: Description, until: _Until
    ) -> Steps[Stream]:
        asked = _whole(request, told)
        answers = yield Open(_timed(asked, until.left()), until.left())
        first = yield Next(answers)
        return Stream(call, told, answers, [] if first is None else [first])

    # ------------------------------------------------------------ what a model is

    def _made(
        self, call: Call, until: _Until, *, splits: bool
    ) -> Steps[tuple[Description, InferRequest]]:
        """Before it says no, it asks again: the model may have been reloaded with other tensors."""
        if (known := self._fresh(call.model, call.version)) is not None:
            try:
                return known, _request(call, known, splits=splits)
            except InputError:
                pass
        told = yield from self._described(call.model, call.version, until.left())
        return told, _request(call, told, splits=splits)

    def _fresh(self, model: str, version: str) -> Description | None:
        """What is known, where that may be relied on; one caller in time is told to ask again."""
        known = self._known.get((model, version))
        if known is None:
            return None
        if self._cache is None:
            return known[0]
        now = self._clock()
        if now - known[1] >= STALE_S:
            return None
        if now >= self._due[model, version]:
            self._due[model, version] = now + SOON_S
            return None
        return known[0]

    def _described(self, model: str, version: str, timeout_s: float | None) -> Steps[Description]:
        asked = self._clock()
        told: Description = yield Describe(model, version, self._cache is not None, timeout_s)
        self._due[model, version] = asked + SOON_S
        self._known[model, version] = told, asked
        if told.mixes_up and model not in self._warned:
            self._warned.add(model)
            warnings.warn(
                f"model `{model}`: Triton's own response cache is on for it, and may give the "
                "answer of another request; leave `response_cache` out of its config",
                RuntimeWarning,
                stacklevel=2,
            )
        return told

    def _forget(self, model: str, version: str) -> None:
        self._known.pop((model, version), None)

    # ------------------------------------------------------------ who answers

    def _from_one_of_two(
        self, call: Call, request: InferRequest, ask: Callable[[InferRequest], Steps[T]]
    ) -> Steps[T]:
        """Of the candidate, when the request is one of its share. Where it is gone, of the live
        model.
        """
        if self.canaries.asks(request):
            self.canaries.learn(request.model, (yield Seek(request.model)))
        candidate = self.canaries.candidate_for(request, call.key)
        try:
            if candidate is not None:
                try:
                    return (yield from ask(candidate))
                except NotServedError:
                    self.canaries.learn(call.model, NO_CANDIDATE)
            return (yield from ask(request))
        except InferenceError:
            self._forget(call.model, call.version)  # perhaps it was reloaded: ask again
            raise

    def _about_candidate(
        self, candidate: InferRequest, live: Description, until: _Until
    ) -> Steps[Description]:
        """It takes what the live model takes; a cache must know who it is."""
        if self._cache is None:
            return live
        if (known := self._fresh(candidate.model, "")) is not None:
            return known
        try:
            return (yield from self._described(candidate.model, "", until.left()))
        except MmctlError as error:
            raise NotServedError(error.message, hint=error.hint) from error

    # ------------------------------------------------------------ the answer

    def _cached(
        self, call: Call, request: InferRequest, told: Description, until: _Until
    ) -> Steps[tuple[InferResponse, CacheNote]]:
        if self._cache is None:
            return (yield from self._computed(call, request, told, until)), NOT_CACHED
        known = request
        if self._headers:  # a model may be handed them too
            known = replace(request, headers={**self._headers, **request.headers})

        def compute(asked: InferRequest) -> Steps[InferResponse]:
            own = replace(asked, headers=request.headers) if self._headers else asked
            return self._computed(call, own, told, until)

        return (
            yield from self._cache.steps(
                told.identity,
                known,
                compute,
                tenant=call.tenant,
                no_store=call.no_store,
                deadline=until.deadline,
            )
        )

    def _computed(
        self, call: Call, request: InferRequest, told: Description, until: _Until
    ) -> Steps[InferResponse]:
        """What the model gives, in as many requests as it takes."""
        parts = parts_of(_whole(request, told), told.signature.max_batch)
        if self.canaries.shadows(request, call.key):
            copies = tuple(self.canaries.copy_of(part) for part in parts)
            yield Mirror(copies, until.left())
        if len(parts) == 1:
            left = until.left()
            response: InferResponse = yield Infer(_timed(parts[0], left), left)
        else:
            response = yield from _gathered(parts, until)
        if self._cache is not None and response.version != told.identity.version:
            self._forget(call.model, call.version)
            self._forget(request.model, request.version)
        if request.outputs and told.ensemble:
            return replace(response, outputs={n: response.outputs[n] for n in request.outputs})
        return response


class _Until:
    """How long a call may still take."""

    __slots__ = ("_clock", "deadline")

    def __init__(self, timeout_s: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.deadline = None if timeout_s is None else clock() + timeout_s

    def left(self) -> float | None:
        """Seconds, above 0; None for no end."""
        return None if self.deadline is None else max(self.deadline - self._clock(), 1e-3)


def _on_time(call: Call, steps: Steps[T]) -> Steps[T]:
    """The same; who is too late is told the time that was allowed, not what was left of it."""
    return steps if call.timeout_s is None else _late_told(call, steps)


def _late_told(call: Call, steps: Steps[T]) -> Steps[T]:
    try:
        return (yield from steps)
    except LateError as error:
        message = f"model `{call.model}`: no answer within {call.timeout_s:g} s"
        raise LateError(message, hint=error.hint) from error


def _gathered(parts: Sequence[InferRequest], until: _Until) -> Steps[InferResponse]:
    """All parts from one version: where it was exchanged in between, all are asked once more."""
    ends: list[InferResponse | Exception] = yield _all(parts, until)
    if not same_version(ends):
        ends = yield _all(parts, until)
    return joined(parts, ends)


def _all(parts: Sequence[InferRequest], until: _Until) -> Gather:
    def one(part: InferRequest) -> Steps[InferResponse]:
        left = until.left()
        answer: InferResponse = yield Infer(_timed(part, left), left)
        return answer

    return Gather(tuple(one(part) for part in parts))


def _request(call: Call, told: Description, *, splits: bool) -> InferRequest:
    return request_for(
        call.model,
        call.inputs,
        told.signature,
        outputs=call.outputs,
        version=call.version,
        request_id=call.request_id,
        parameters=call.parameters,
        headers=call.headers,
        splits=splits and not told.stateful,
    )


def _whole(request: InferRequest, told: Description) -> InferRequest:
    """An ensemble is asked for all outputs: Triton can wait for ever when it is asked for some."""
    return replace(request, outputs=()) if told.ensemble and request.outputs else request


def _timed(request: InferRequest, left: float | None) -> InferRequest:
    """Triton is told how long the request may wait in a queue, in microseconds: a queue policy with
    `allow_timeout_override` obeys, others do not mind.
    """
    if left is None or "timeout" in request.parameters:
        return request
    return replace(request, parameters={**request.parameters, "timeout": int(left * 1e6)})


def _refuse_streams(told: Description, call: Call) -> None:
    if told.decoupled:
        raise InputError(
            f"model `{call.model}` gives any number of answers to a request",
            hint=f"use `for answer in client.stream({call.model!r}, ...)`",
        )


def _refuse_orphans(told: Description, call: Call) -> None:
    if told.stateful and "sequence_id" not in call.parameters:
        raise InputError(
            f"model `{call.model}` is stateful: its requests belong to sequences",
            hint=f"use `with client.sequence({call.model!r}) as sequence: sequence.infer(...)`",
        )


def merged(
    inputs: Mapping[str, object] | None, values: Mapping[str, object]
) -> Mapping[str, object]:
    """Inputs by name and by keyword together. Raises InputError for one that is given twice."""
    if not values or not inputs:
        return values or inputs or {}
    if twice := sorted(inputs.keys() & values.keys()):
        raise InputError(
            f"input `{twice[0]}` is given twice", hint="pass it by name or by keyword, not both"
        )
    return {**inputs, **values}
