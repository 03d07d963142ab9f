"""Several servers as one: over a real gRPC wire, to servers that only speak Triton's protocol."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import numpy as np
import pytest
from fake_triton import FakeTriton, running

from mmctl.client.replicas import Pause, Rules, Send, open_async_server, open_server
from mmctl.client.retries import NO_RETRIES, RETRIES, Retries
from mmctl.client.status import NobodyThereError
from mmctl.effects import drive
from mmctl.errors import InferenceError, InputError, WorldError
from mmctl.inference import InferRequest, InferResponse

REQUEST = InferRequest("echo", {"x": np.ones((1, 4), np.float32)})
NOBODY = "127.0.0.1:9"
Ask = Callable[..., InferResponse]


@pytest.fixture
def servers() -> Iterator[list[FakeTriton]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(FakeTriton())) for _ in range(2)]


def urls_of(servers: list[FakeTriton]) -> list[str]:
    return [server.address for server in servers]


def infer(
    urls: str | list[str],
    request: InferRequest = REQUEST,
    timeout_s: float | None = 5,
    retries: Retries = RETRIES,
) -> InferResponse:
    with open_server(urls, retries=retries) as server:
        return server.infer(request, timeout_s)


def infer_async(
    urls: str | list[str],
    request: InferRequest = REQUEST,
    timeout_s: float | None = 5,
    retries: Retries = RETRIES,
) -> InferResponse:
    async def ask() -> InferResponse:
        server = open_async_server(urls, retries=retries)
        try:
            return await server.infer(request, timeout_s)
        finally:
            await server.close()

    return asyncio.run(ask())


BOTH = pytest.mark.parametrize("ask", [infer, infer_async], ids=["sync", "asyncio"])


@BOTH
def test_who_is_not_there_is_passed_over(servers: list[FakeTriton], ask: Ask) -> None:
    for urls in ([NOBODY, servers[0].address], [servers[0].address, NOBODY]):
        assert ask(urls).outputs.keys() == {"x_out"}
    assert len(servers[0].asked) == 2


@BOTH
def test_an_error_of_triton_is_final(servers: list[FakeTriton], ask: Ask) -> None:
    for server in servers:
        server.failure = (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
    with pytest.raises(InferenceError, match="Exceeds maximum queue size"):
        ask(urls_of(servers))
    assert sum(len(server.asked) for server in servers) == 1


@BOTH
def test_a_request_that_is_too_late_is_not_sent_again(servers: list[FakeTriton], ask: Ask) -> None:
    for server in servers:
        server.go_on.clear()
    with pytest.raises(WorldError, match=r"no answer within 0\.(2|19\d) s"):
        ask(urls_of(servers), timeout_s=0.2)
    assert sum(len(server.asked) for server in servers) == 1


@BOTH
def test_a_server_on_its_way_out_is_passed_over(servers: list[FakeTriton], ask: Ask) -> None:
    text = "Server is stopping, scheduler for model has stopped accepting new inference requests"
    servers[0].failure = (grpc.StatusCode.UNAVAILABLE, text)
    for _ in range(3):
        ask(urls_of(servers))
    assert len(servers[1].asked) == 3


@BOTH
def test_when_all_are_gone_one_error_says_so_soon(ask: Ask) -> None:
    start = time.monotonic()
    with pytest.raises(NobodyThereError, match="none of 2 servers answers") as caught:
        ask([NOBODY, "127.0.0.1:10"])
    assert 0.3 < time.monotonic() - start < 2
    text = str(caught.value)
    assert text.count("no Triton answers") == 2
    assert NOBODY in text
    assert "127.0.0.1:10" in text
    assert "mmctl serve" in str(caught.value.hint)


@BOTH
def test_the_deadline_ends_further_rounds(ask: Ask) -> None:
    start = time.monotonic()
    with pytest.raises(NobodyThereError):
        ask(NOBODY, timeout_s=0.1)
    assert time.monotonic() - start < 0.3


def test_a_server_that_comes_back_within_the_rounds_answers(servers: list[FakeTriton]) -> None:
    port = servers[0].address
    with running(FakeTriton()) as late:
        pass  # a port that is free again
    starts = threading.Timer(0.15, lambda: started.append(_bound(late.address)))
    started: list[grpc.Server] = []
    starts.start()
    try:
        answer = infer(late.address, retries=Retries(rounds=5))
    finally:
        starts.join()
        started[0].stop(None).wait()
    assert answer.model == "echo"
    assert port != late.address


def _bound(address: str) -> grpc.Server:
    from tritonclient.grpc import service_pb2_grpc

    server = grpc.server(ThreadPoolExecutor(1))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(FakeTriton(), server)
    server.add_insecure_port(address)
    server.start()
    return server


def test_the_budget_bounds_what_a_dead_server_gets() -> None:
    rules, sent, pauses = Rules(1), 0, 0

    def perform(effect: object) -> None:
        nonlocal sent, pauses
        sent, pauses = sent + isinstance(effect, Send), pauses + isinstance(effect, Pause)
        if isinstance(effect, Send):
            raise NobodyThereError("gone")

    for _ in range(1000):
        with pytest.raises(NobodyThereError):
            drive(rules.ask(), perform)
    assert pauses == sent - 1000
    assert 100 <= pauses <= 110


def test_without_retries_it_is_asked_once() -> None:
    start = time.monotonic()
    with pytest.raises(NobodyThereError, match="no Triton answers"):
        infer(NOBODY, retries=NO_RETRIES)
    assert time.monotonic() - start < 0.5


def test_the_less_busy_server_is_asked(servers: list[FakeTriton]) -> None:
    servers[0].go_on.clear()
    with open_server(urls_of(servers)) as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.infer, REQUEST, 5)
        while not servers[0].asked:
            time.sleep(0.01)
        for _ in range(9):
            server.infer(REQUEST, 5)
        assert len(servers[1].asked) == 9
        servers[0].go_on.set()
        assert waiting.result(5).model == "echo"


def test_a_replica_that_is_back_is_probed_and_asked_again(
    servers: list[FakeTriton], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmctl.client.roster.FIRST_ABSENCE_S", 0.05)
    with running(FakeTriton()) as gone:
        pass
    with open_server([gone.address, servers[0].address]) as server:
        server.infer(REQUEST, 5)
        back = _bound(gone.address)
        try:
            deadline = time.monotonic() + 5
            while len(servers[0].asked) < 200 and time.monotonic() < deadline:
                server.infer(REQUEST, 5)
                time.sleep(0.02)
                before = len(servers[0].asked)
                server.infer(REQUEST, 5)
                server.infer(REQUEST, 5)
                if len(servers[0].asked) == before + 1:
                    return
        finally:
            back.stop(None).wait()
    pytest.fail("it was not asked again")


@BOTH
def test_a_sequence_stays_with_the_server_of_its_state(servers: list[FakeTriton], ask: Ask) -> None:
    sequence = random.randrange(1, 2**62)
    for number in range(4):
        flags = {"sequence_start": number == 0, "sequence_end": number == 3}
        request = InferRequest(
            "echo", REQUEST.inputs, parameters={"sequence_id": sequence, **flags}
        )
        ask(urls_of(servers), request)
    assert sorted(len(server.asked) for server in servers) == [0, 4]


def test_a_sequence_begins_elsewhere_and_is_never_moved(servers: list[FakeTriton]) -> None:
    def step(sequence: int, *, start: bool) -> InferRequest:
        flags: dict[str, str | int | bool] = {"sequence_id": sequence, "sequence_start": start}
        return InferRequest("echo", REQUEST.inputs, parameters=flags)

    with open_server([NOBODY, servers[0].address]) as server:
        for sequence in range(1, 9):  # about half of them would live where nobody is
            server.infer(step(sequence, start=True), 5)
            server.infer(step(sequence, start=False), 5)
    failures: list[NobodyThereError] = []
    with open_server([NOBODY, servers[0].address]) as server:
        for sequence in range(1, 9):
            try:
                server.infer(step(sequence, start=False), 5)
            except NobodyThereError as error:
                failures.append(error)
    assert 0 < len(failures) < 8
    assert "its state is lost" in str(failures[0])
    assert failures[0].hint == "begin the sequence again"


def test_a_stream_goes_elsewhere_only_before_its_first_answer(servers: list[FakeTriton]) -> None:
    with open_server([NOBODY, servers[0].address]) as server:
        for _ in range(2):
            assert len(list(server.stream(REQUEST, 5))) == 2
    servers[0].stream_error = "boom"
    with open_server(urls_of(servers)[:1]) as server:
        answers = server.stream(REQUEST, 5)
        assert next(answers).model == "echo"
        with pytest.raises(InferenceError, match="boom"):
            next(answers)


def test_a_stream_of_asyncio(servers: list[FakeTriton]) -> None:
    async def ask() -> int:
        server = open_async_server([NOBODY, servers[0].address])
        try:
            return len([answer async for answer in server.stream(REQUEST, 5)])
        finally:
            await server.close()

    assert asyncio.run(ask()) == 2


def test_leaving_a_stream_of_asyncio_early_ends_it_at_the_server(
    servers: list[FakeTriton],
) -> None:
    """With the reader, not when somebody collects what it left."""

    async def left() -> bool:
        server = open_async_server(servers[0].address)
        try:
            answers = server.stream(REQUEST, 5)
            await anext(answers)
            frame = answers.ag_frame
            inner = frame.f_locals["opened"].rest
            await answers.aclose()
            return inner.ag_frame is None
        finally:
            await server.close()

    assert asyncio.run(left())


def test_models_are_described_by_who_is_there(servers: list[FakeTriton]) -> None:
    with open_server([NOBODY, servers[0].address]) as server:
        assert server.describe("echo").identity.model == "echo"
        assert server.candidate("echo").share == 0
        assert server.ready(1)


def test_an_address_is_taken_once_and_there_must_be_one() -> None:
    with pytest.raises(InputError, match="no address is given"):
        open_server([])
    with (
        open_server([NOBODY, NOBODY], retries=NO_RETRIES) as server,
        pytest.raises(NobodyThereError, match=f"^{NOBODY}: no Triton answers"),
    ):
        server.infer(REQUEST, 1)
