"""The transport over a real gRPC wire, to a server that only speaks Triton's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from fake_triton import FakeTriton, config, running

from mmctl.client.status import STATUSES
from mmctl.client.transport import AsyncGrpcTransport, GrpcTransport, parse_address
from mmctl.errors import InferenceError, InputError, MmctlError, WorldError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Signature, TensorSpec, parse_type

ERRORS = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
ONE = {"x": np.ones((1, 4), np.float32)}
Ask = Callable[..., InferResponse]
AskSignature = Callable[..., Signature]


@pytest.fixture
def server() -> Iterator[FakeTriton]:
    with running(FakeTriton()) as fake:
        yield fake


def infer(server: FakeTriton, request: InferRequest, timeout_s: float | None = 5) -> InferResponse:
    with GrpcTransport(server.address) as transport:
        return transport.infer(request, timeout_s)


def infer_async(
    server: FakeTriton, request: InferRequest, timeout_s: float | None = 5
) -> InferResponse:
    async def ask() -> InferResponse:
        transport = AsyncGrpcTransport(server.address)
        try:
            return await transport.infer(request, timeout_s)
        finally:
            await transport.close()

    return asyncio.run(ask())


BOTH = pytest.mark.parametrize("ask", [infer, infer_async], ids=["sync", "asyncio"])


def test_every_status_of_grpc_has_a_row() -> None:
    assert {code.name for code in ERRORS} == set(STATUSES)


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
def test_a_failure_is_our_error_with_the_servers_own_text(
    server: FakeTriton, code: grpc.StatusCode
) -> None:
    server.failure = (code, "boom: the model said so\nin two lines")
    with pytest.raises(WorldError) as caught:
        infer(server, InferRequest("echo", ONE))
    assert caught.value.exit_code == 3
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert str(caught.value) == "model `echo`: no answer within 5 s"
    else:
        assert isinstance(caught.value, InferenceError)
        assert str(caught.value) == "model `echo`: boom: the model said so\nin two lines"


@BOTH
def test_arrays_and_texts_travel(server: FakeTriton, ask: Ask) -> None:
    inputs = {"t": np.array([["é"], [b"\xff"]], dtype=object), "h": np.ones((2, 1), np.float16)}
    answer = ask(server, InferRequest("echo", inputs, request_id="7"))
    assert answer.outputs["t_out"].tolist() == [["é".encode()], [b"\xff"]]
    np.testing.assert_array_equal(answer.outputs["h_out"], inputs["h"])
    assert (answer.model, answer.version, server.asked[0].id) == ("echo", "1", "7")


def test_outputs_parameters_version_and_headers_travel(server: FakeTriton) -> None:
    request = InferRequest(
        "echo",
        ONE,
        outputs=("x_out",),
        version="1",
        parameters={"lang": "de", "k": 3, "fast": True},
        headers={"X-Request": "7"},
    )
    with GrpcTransport(server.address, {"Authorization": "t"}) as transport:
        transport.infer(request)
    asked = server.asked[0]
    assert [output.name for output in asked.outputs] == ["x_out"]
    assert asked.model_version == "1"
    assert asked.parameters["lang"].string_param == "de"
    assert asked.parameters["k"].int64_param == 3
    assert asked.parameters["fast"].bool_param is True
    assert server.metadata.items() >= {("authorization", "t"), ("x-request", "7")}


@BOTH
def test_answers_above_4_mb_come_through(server: FakeTriton, ask: Ask) -> None:
    array = np.ones((1, 2_000_000), np.float32)
    assert ask(server, InferRequest("echo", {"x": array})).outputs["x_out"].nbytes == 8_000_000


def test_a_request_above_2_gb_is_refused_before_it_is_copied(server: FakeTriton) -> None:
    array = np.broadcast_to(np.float32(0), (1, 540_000_000))
    with pytest.raises(InputError, match=r"has 2\.16 GB, and one gRPC message may have 2\.15 GB"):
        infer(server, InferRequest("echo", {"x": array}))
    assert not server.asked


@BOTH
def test_a_deadline_ends_the_wait(server: FakeTriton, ask: Ask) -> None:
    server.go_on.clear()
    with pytest.raises(WorldError, match=r"model `echo`: no answer within 0\.2 s"):
        ask(server, InferRequest("echo", ONE), 0.2)


@BOTH
def test_a_server_that_is_gone_is_told(ask: Ask) -> None:
    with running(FakeTriton()) as gone:
        pass
    with pytest.raises(WorldError, match=f"{gone.address}: no Triton answers") as caught:
        ask(gone, InferRequest("echo", ONE))
    assert not isinstance(caught.value, InferenceError)
    assert "mmctl serve" in str(caught.value.hint)


def test_a_message_limit_on_the_way_is_explained(server: FakeTriton) -> None:
    text = "SERVER: Received message larger than max (5000031 vs. 4194304)"
    server.failure = (grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    with pytest.raises(InferenceError, match="larger than max") as caught:
        infer(server, InferRequest("echo", ONE))
    assert "proxy" in str(caught.value.hint)


@pytest.mark.parametrize(
    "headers", [{"a b": "c"}, {"a": "é"}, {"a": "b\nc"}], ids=["space", "not ASCII", "two lines"]
)
def test_headers_that_cannot_travel_are_refused(
    server: FakeTriton, headers: dict[str, str]
) -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        infer(server, InferRequest("echo", ONE, headers=headers))


def signature(server: FakeTriton, model: str = "echo", version: str = "") -> Signature:
    with GrpcTransport(server.address) as transport:
        return transport.signature(model, version)


def signature_async(server: FakeTriton, model: str = "echo", version: str = "") -> Signature:
    async def ask() -> Signature:
        transport = AsyncGrpcTransport(server.address)
        try:
            return (await transport.describe(model, version)).signature
        finally:
            await transport.close()

    return asyncio.run(ask())


BOTH_SIGNATURES = pytest.mark.parametrize(
    "ask", [signature, signature_async], ids=["sync", "asyncio"]
)


def share(server: FakeTriton) -> float:
    with GrpcTransport(server.address) as transport:
        return transport.candidate("echo").share


def share_async(server: FakeTriton) -> float:
    async def ask() -> float:
        transport = AsyncGrpcTransport(server.address)
        try:
            return (await transport.candidate("echo")).share
        finally:
            await transport.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [share, share_async], ids=["sync", "asyncio"])
def test_the_share_of_a_candidate_is_read_from_its_config(
    server: FakeTriton, ask: Callable[[FakeTriton], float]
) -> None:
    assert ask(server) == 0
    server.configs["echo__next"] = config("echo__next")
    assert ask(server) == 0
    parameter = server.configs["echo__next"].parameters["mmctl.canary"]
    for text, percent in (("2.5", 2.5), ("half", 0)):
        parameter.string_value = text
        assert ask(server) == percent


@pytest.mark.parametrize("ask", [share, share_async], ids=["sync", "asyncio"])
def test_a_server_that_does_not_answer_has_no_candidates(
    ask: Callable[[FakeTriton], float],
) -> None:
    nobody = FakeTriton()
    nobody.address = "127.0.0.1:9"
    assert ask(nobody) == 0


@BOTH_SIGNATURES
def test_a_signature_is_read_from_the_models_config(server: FakeTriton, ask: AskSignature) -> None:
    message = config("other", {"t": ("TYPE_STRING", [1]), "x": ("TYPE_FP16", [-1, 3])}, max_batch=8)
    message.input[1].optional = True
    server.configs["other"] = message
    assert ask(server, "other") == Signature(
        inputs=(
            TensorSpec("t", parse_type("bytes")),
            TensorSpec("x", parse_type("fp16[-1,3]"), optional=True),
        ),
        outputs=(
            TensorSpec("t_out", parse_type("bytes")),
            TensorSpec("x_out", parse_type("fp16[-1,3]")),
        ),
        max_batch=8,
    )


@BOTH_SIGNATURES
@pytest.mark.parametrize(
    ("model", "version", "text", "exit_code"),
    [
        pytest.param("ecko", "", "no model `ecko`; did you mean `echo`?", 2, id="no such name"),
        pytest.param("echo", "7", "model `echo` has no version `7`; take", 2, id="no such version"),
        pytest.param("sick", "", "model `sick` is not ready: no GPU; read", 3, id="did not load"),
        pytest.param("idle", "", "model `idle` is not ready: not loaded; read", 3, id="unloaded"),
    ],
)
def test_a_model_that_is_not_served_is_explained(
    server: FakeTriton, ask: AskSignature, *, model: str, version: str, text: str, exit_code: int
) -> None:
    server.states += [("sick", "1", "UNAVAILABLE", "no GPU"), ("idle", "", "", "")]
    with pytest.raises(MmctlError) as caught:
        ask(server, model, version)
    assert text in f"{caught.value}; {caught.value.hint}"
    assert caught.value.exit_code == exit_code


@BOTH_SIGNATURES
def test_where_the_index_is_closed_tritons_own_words_must_do(
    server: FakeTriton, ask: AskSignature
) -> None:
    server.index_closed = True
    with pytest.raises(InferenceError, match="unknown model: 'ecko'"):
        ask(server, "ecko")


@BOTH_SIGNATURES
@pytest.mark.parametrize(
    ("model", "version", "text"),
    [
        pytest.param("ecko", "", "no model `ecko` is loaded; did you mean `echo`?", id="no name"),
        pytest.param("echo", "7", "no version `7`; take one that is served: 1", id="no version"),
    ],
)
def test_where_the_index_is_closed_statistics_name_what_is_loaded(
    server: FakeTriton, ask: AskSignature, *, model: str, version: str, text: str
) -> None:
    server.index_closed, server.loaded = True, ["echo"]
    with pytest.raises(InputError) as caught:
        ask(server, model, version)
    assert text in f"{caught.value}; {caught.value.hint}"


def test_ready_and_index(server: FakeTriton) -> None:
    with GrpcTransport(server.address) as transport:
        assert transport.ready()
        assert [(e.model, e.version, e.state) for e in transport.index()] == [
            ("echo", "1", "READY")
        ]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("127.0.0.1:8001", "127.0.0.1:8001"),
        ("grpc://triton.example.org:8001", "triton.example.org:8001"),
        ("grpc://[::1]:8001/", "[::1]:8001"),
        ("grpcs://triton.example.org:443/", "grpcs://triton.example.org:443"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "localhost", "", "a b:1", "host:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not the address of a gRPC port"):
        GrpcTransport(url)


def test_a_stream_brings_every_answer_and_then_ends(server: FakeTriton) -> None:
    with GrpcTransport(server.address, {"Authorization": "t"}) as transport:
        answers = list(transport.stream(InferRequest("echo", ONE, parameters={"k": 3}), 5))
    assert [answer.outputs["x_out"].tolist() for answer in answers] == [ONE["x"].tolist()] * 2
    assert server.asked[0].parameters["k"].int64_param == 3
    assert server.metadata["authorization"] == "t"


def test_a_stream_may_fail_after_some_answers(server: FakeTriton) -> None:
    server.stream_error = "boom"
    with GrpcTransport(server.address) as transport:
        answers = transport.stream(InferRequest("echo", ONE), 5)
        assert next(answers).model == "echo"
        with pytest.raises(InferenceError, match="model `echo`: boom"):
            next(answers)


def test_a_stream_has_a_deadline(server: FakeTriton) -> None:
    server.go_on.clear()
    with (
        GrpcTransport(server.address) as transport,
        pytest.raises(WorldError, match=r"model `echo`: no answer within 0\.2 s"),
    ):
        list(transport.stream(InferRequest("echo", ONE), 0.2))
