"""The clients over a fake server: what they ask, when they ask again, what they give back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from mmctl import AsyncClient, Client, InferenceError
from mmctl.errors import InputError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Signature, TensorSpec, parse_type


def takes(kind: str) -> Signature:
    return Signature((TensorSpec("x", parse_type(kind)),), (), max_batch=4)


class FakeServer:
    """Answers with "ok", or fails once when told to."""

    def __init__(self, signature: Signature) -> None:
        self.known = signature
        self.asked: list[InferRequest] = []
        self.signatures_asked = 0
        self.failure: InferenceError | None = None
        self.closed = False

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        return InferResponse({"label": np.array([[b"ok"]], dtype=object)}, request.model, "1")

    def signature(self, model: str, version: str = "") -> Signature:
        self.signatures_asked += 1
        return self.known

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

    async def close(self) -> None:
        self.inner.close()


class Asker:
    """One of the two clients over one fake server."""

    def __init__(self, kind: str, server: FakeServer) -> None:
        self.sync = Client("fake:1", server=server)
        self.aio = AsyncClient("fake:1", server=FakeAsyncServer(server))
        self.kind = kind

    def infer(self, value: object) -> InferResponse:
        if self.kind == "sync":
            return self.sync.infer("m", {"x": value})
        return asyncio.run(self.aio.infer("m", {"x": value}))


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
