"""The clients over a fake server: what they ask, when they ask again, what they give back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from mmctl import AsyncClient, Client, InferenceError
from mmctl.client.status import NotFoundError
from mmctl.errors import InputError
from mmctl.inference import InferRequest, InferResponse
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
        self.gone = False
        self.shares_asked = 0

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        self.asked.append(request)
        if self.gone and request.model == "m__next":
            raise NotFoundError("unknown model: 'm__next' is not found")
        if self.failure is not None:
            raise self.failure
        return InferResponse({"label": np.array([[b"ok"]], dtype=object)}, request.model, "1")

    def signature(self, model: str, version: str = "") -> Signature:
        self.signatures_asked += 1
        return self.known

    def share(self, model: str) -> float:
        self.shares_asked += 1
        return self.canary

    def close(self) -> None:
        self.closed = True


class FakeAsyncServer:
    """The same, awaited."""

    def __init__(self, inner: FakeServer) -> None:
        self.inner = inner

    async def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        return self.inner.infer(request, timeout_s)

    async def signature(self, model: str, version: str = "") -> Signature:
        return self.inner.signature(model, version)

    async def share(self, model: str) -> float:
        return self.inner.share(model)

    async def close(self) -> None:
        self.inner.close()


class Asker:
    """One of the two clients over one fake server."""

    def __init__(self, kind: str, server: FakeServer) -> None:
        self.sync = Client("fake:1", server=server)
        self.aio = AsyncClient("fake:1", server=FakeAsyncServer(server))
        self.kind = kind

    def infer(self, value: object, *, version: str = "", key: str = "") -> InferResponse:
        if self.kind == "sync":
            return self.sync.infer("m", {"x": value}, version=version, key=key)
        return asyncio.run(self.aio.infer("m", {"x": value}, version=version, key=key))


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
