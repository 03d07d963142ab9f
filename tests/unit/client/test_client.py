"""The clients over a fake server: what they ask, when they ask again, what they give back."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from mmctl import AsyncClient, Client, InferenceError
from mmctl.cache.keys import Identity
from mmctl.client.description import Candidacy, Description
from mmctl.client.performers import AT_ONCE
from mmctl.client.status import NotFoundError
from mmctl.errors import InputError
from mmctl.inference import InferRequest, InferResponse, InferResult
from mmctl.tensors import Signature, TensorSpec, parse_type


def takes(kind: str) -> Signature:
    return Signature((TensorSpec("x", parse_type(kind)),), (), max_batch=4)


class FakeServer:
    """Answers with "ok", or fails once when told to. `canary` is the share of a candidate, which
    does not answer once it is `gone`.
    """

    def __init__(self, signature: Signature) -> None:
        self.known = signature
        self.asked: list[InferRequest] = []
        self.signatures_asked = 0
        self.failure: InferenceError | None = None
        self.closed = False
        self.canary = 0.0
        self.shadow = 0.0
        self.told = Description(signature, Identity("m", "1"))
        self.gone = False
        self.streams_left = 0
        self.slow_copies: threading.Event | None = None
        self.shares_asked = 0

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        self.asked.append(request)
        if self.gone and request.model == "m__next":
            raise NotFoundError("unknown model: 'm__next' is not found")
        if self.failure is not None:
            raise self.failure
        if self.slow_copies is not None and request.model == "m__next":
            self.slow_copies.wait(10)
        rows = len(request.inputs["x"])
        return InferResponse({"label": np.array([[b"ok"]] * rows, object)}, request.model, "1")

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> Iterator[InferResponse]:
        try:
            for _ in range(3):
                yield self.infer(request, timeout_s)
        finally:
            self.streams_left += 1

    def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        self.signatures_asked += 1
        return replace(self.told, signature=self.known, identity=Identity(model, version))

    def candidate(self, model: str) -> Candidacy:
        self.shares_asked += 1
        return Candidacy(self.canary, self.shadow)

    def close(self) -> None:
        self.closed = True


class FakeAsyncServer:
    """The same, awaited."""

    def __init__(self, inner: FakeServer) -> None:
        self.inner = inner

    async def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        return self.inner.infer(request, timeout_s)

    async def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        answers = self.inner.stream(request, timeout_s)
        try:
            for answer in answers:
                yield answer
        finally:
            answers.close()  # type: ignore[attr-defined]

    async def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        return self.inner.describe(model, version, identify=identify, timeout_s=timeout_s)

    async def candidate(self, model: str) -> Candidacy:
        return self.inner.candidate(model)

    async def close(self) -> None:
        self.inner.close()


class Asker:
    """One of the two clients over one fake server."""

    def __init__(self, kind: str, server: FakeServer) -> None:
        self.kind = kind
        self.server = server

    def infer(self, value: object, **options: Any) -> InferResult:
        return self.run(lambda client: client.infer("m", {"x": value}, **options))

    def run(self, call: Callable[[Any], Any]) -> Any:
        """What a method of the client gives; it is awaited where it must be."""
        if self.kind == "sync":
            return call(self.sync)
        return asyncio.run(self._awaited(call))

    @cached_property
    def sync(self) -> Client:
        return Client("fake:1", server=self.server)

    @cached_property
    def aio(self) -> AsyncClient:
        return AsyncClient("fake:1", server=FakeAsyncServer(self.server))

    async def _awaited(self, call: Callable[[Any], Any]) -> Any:
        return await call(self.aio)

    def streamed(self, value: object, count: int | None = None) -> list[str]:
        """The first `count` answers of a stream, or all."""
        if self.kind == "sync":
            answers = self.sync.stream("m", x=value)
            found = [label_of(answer) for answer in itertools.islice(answers, count)]
            answers.close()  # type: ignore[attr-defined]
            return found
        return asyncio.run(self._streamed(value, count))

    async def _streamed(self, value: object, count: int | None) -> list[str]:
        answers = self.aio.stream("m", x=value)
        found: list[str] = []
        async for answer in answers:
            found.append(label_of(answer))
            if len(found) == count:
                break
        await answers.aclose()  # type: ignore[attr-defined]
        return found

    def sequence(self, *values: object, last: bool) -> None:
        """One sequence of these requests; `last` says which is the last of them."""
        if self.kind == "sync":
            with self.sync.sequence("m") as sequence:
                for number, value in enumerate(values, start=1):
                    sequence.infer(x=value, last=last and number == len(values))
        else:
            asyncio.run(self._sequence(*values, last=last))

    async def _sequence(self, *values: object, last: bool) -> None:
        async with self.aio.sequence("m") as sequence:
            for number, value in enumerate(values, start=1):
                await sequence.infer(x=value, last=last and number == len(values))


def label_of(answer: InferResponse) -> str:
    return str(answer.outputs["label"].item())


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(takes("fp32[2]"))


@pytest.fixture(params=["sync", "asyncio"])
def client(request: pytest.FixtureRequest, server: FakeServer) -> Asker:
    return Asker(request.param, server)


def test_texts_come_back_as_str(client: Asker) -> None:
    assert client.infer([1, 2]).outputs["label"].tolist() == [["ok"]]


def test_a_signature_is_asked_for_once(client: Asker, server: FakeServer) -> None:
    for _ in range(3):
        client.infer([1, 2])
    assert (server.signatures_asked, len(server.asked)) == (1, 3)


def test_before_it_says_no_it_asks_whether_the_model_changed(
    client: Asker, server: FakeServer
) -> None:
    client.infer([1, 2])
    server.known = takes("fp32[3]")
    client.infer([1, 2, 3])
    assert server.asked[-1].inputs["x"].shape == (1, 3)


def test_a_refusal_by_the_server_makes_it_ask_again(client: Asker, server: FakeServer) -> None:
    client.infer([1, 2])
    server.known, server.failure = takes("fp64[2]"), InferenceError("expects fp64")
    with pytest.raises(InferenceError, match="expects fp64"):
        client.infer([1, 2])
    server.failure = None
    client.infer([1, 2])
    assert server.asked[-1].inputs["x"].dtype == np.float64


def test_wrong_values_are_never_sent(client: Asker, server: FakeServer) -> None:
    with pytest.raises(InputError):
        client.infer("text")
    assert not server.asked


def test_a_canary_answers_for_its_share_and_equal_keys_go_the_same_way(
    client: Asker, server: FakeServer
) -> None:
    server.canary = 25
    first, again = ([client.infer([1, 2], key=f"{n}").model for n in range(200)] for _ in "ab")
    assert first == again
    assert 30 < first.count("m__next") < 70
    assert server.shares_asked == 1


def test_a_request_for_one_version_goes_to_no_candidate(client: Asker, server: FakeServer) -> None:
    server.canary = 100
    assert client.infer([1, 2], version="1").model == "m"
    assert client.infer([1, 2]).model == "m__next"


def test_where_the_candidate_is_gone_the_live_model_answers_and_it_is_forgotten(
    client: Asker, server: FakeServer
) -> None:
    server.canary, server.gone = 100, True
    assert [client.infer([1, 2]).model for _ in range(3)] == ["m", "m", "m"]
    assert [request.model for request in server.asked] == ["m__next", "m", "m", "m"]


def test_what_a_candidate_refuses_is_told(client: Asker, server: FakeServer) -> None:
    server.canary, server.failure = 100, InferenceError("boom")
    with pytest.raises(InferenceError, match="boom"):
        client.infer([1, 2])
    assert [request.model for request in server.asked] == ["m__next"]


def test_leaving_the_block_closes_the_connection(server: FakeServer) -> None:
    with Client("fake:1", server=server):
        pass
    assert server.closed


def test_leaving_the_async_block_closes_the_connection(server: FakeServer) -> None:
    async def block() -> None:
        async with AsyncClient("fake:1", server=FakeAsyncServer(server)):
            pass

    asyncio.run(block())
    assert server.closed


def test_inputs_may_be_keywords(client: Asker, server: FakeServer) -> None:
    client.run(lambda asked: asked.infer("m", x=[1, 2]))
    assert server.asked[0].inputs["x"].tolist() == [[1, 2]]


def test_rows_beyond_the_models_batch_are_sent_in_parts(client: Asker, server: FakeServer) -> None:
    answer = client.infer(np.arange(20).reshape(10, 2))
    assert answer.outputs["label"].tolist() == [["ok"]] * 10
    firsts = sorted(request.inputs["x"][0, 0] for request in server.asked)
    assert firsts == [0, 8, 16]


def test_an_error_of_a_part_is_raised(client: Asker, server: FakeServer) -> None:
    server.failure = InferenceError("boom")
    with pytest.raises(InferenceError, match="rows 1 to 4 of 10: boom"):
        client.infer(np.zeros((10, 2)))


def test_a_shadow_gets_copies_in_the_background_whose_answers_and_errors_are_dropped(
    client: Asker, server: FakeServer
) -> None:
    server.shadow, server.gone = 100, True
    assert client.infer([1, 2]).model == "m"
    if client.kind == "sync":
        end = time.monotonic() + 10
        while len(server.asked) < 2 and time.monotonic() < end:
            time.sleep(0.001)
        assert {request.model for request in server.asked} == {"m", "m__next"}


def test_a_copy_that_takes_long_holds_nobody_up(server: FakeServer) -> None:
    server.shadow, server.slow_copies = 100, threading.Event()
    with Client("fake:1", server=server) as client:
        for _ in range(100):
            assert client.infer("m", x=[1, 2]).model == "m"
        copies = [request for request in server.asked if request.model == "m__next"]
        assert len(copies) <= AT_ONCE
        server.slow_copies.set()


def test_copies_of_tasks_are_sent_and_given_up_at_the_end(server: FakeServer) -> None:
    server.shadow = 100

    async def block() -> None:
        async with AsyncClient("fake:1", server=FakeAsyncServer(server)) as client:
            await client.infer("m", x=[1, 2])
            await asyncio.sleep(0)

    asyncio.run(block())
    assert [request.model for request in server.asked] == ["m", "m__next"]


def test_every_answer_of_a_stream_comes(client: Asker, server: FakeServer) -> None:
    server.told = replace(server.told, decoupled=True)
    assert client.streamed([1, 2]) == ["ok"] * 3
    assert server.streams_left == 1


def test_a_stream_that_is_left_early_is_closed(client: Asker, server: FakeServer) -> None:
    assert client.streamed([1, 2], count=1) == ["ok"]
    assert server.streams_left == 1


def test_a_stream_has_a_candidate_too(client: Asker, server: FakeServer) -> None:
    server.canary = 100
    client.streamed([1, 2])
    server.gone = True
    client.streamed([1, 2])
    models = [request.model for request in server.asked]
    assert models == ["m__next"] * 4 + ["m"] * 3


def flags(request: InferRequest) -> tuple[object, object]:
    return request.parameters["sequence_start"], request.parameters["sequence_end"]


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        pytest.param(True, [(True, False), (False, True)], id="told which is the last"),
        pytest.param(False, [(True, False), (False, False), (False, True)], id="left"),
    ],
)
def test_a_sequence_begins_goes_on_and_ends(
    client: Asker, server: FakeServer, *, last: bool, wanted: list[tuple[bool, bool]]
) -> None:
    server.told = replace(server.told, stateful=True)
    client.sequence([1, 2], [3, 4], last=last)
    assert [flags(request) for request in server.asked] == wanted
    assert len({request.parameters["sequence_id"] for request in server.asked}) == 1


def test_sequences_have_ids_of_their_own_and_nobody_ends_what_never_began(
    client: Asker, server: FakeServer
) -> None:
    for _ in range(2):
        client.sequence(last=False)
        client.sequence([1, 2], last=True)
    ids = {request.parameters["sequence_id"] for request in server.asked}
    assert len(ids) == len(server.asked) == 2


def test_a_sequence_whose_first_request_failed_begins_with_the_next(server: FakeServer) -> None:
    server.failure = InferenceError("boom")
    with Client("fake:1", server=server) as client, client.sequence("m") as sequence:
        with pytest.raises(InferenceError):
            sequence.infer(x=[1, 2])
        server.failure = None
        sequence.infer(x=[1, 2], last=True)
    assert [flags(request) for request in server.asked] == [(True, False), (True, True)]
