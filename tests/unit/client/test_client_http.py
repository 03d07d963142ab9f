"""What HTTP brings: bodies that fit or do not, and every status that a server or a proxy gives."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from mmctl.client.http import AsyncHttpTransport, HttpTransport
from mmctl.client.http_messages import STATUS_CODES, infer_body, infer_response
from mmctl.client.status import STATUSES, NobodyThereError, NotFoundError, NotServedError
from mmctl.client.tls import Tls
from mmctl.errors import InferenceError, InputError, MmctlError, WorldError
from mmctl.inference import InferRequest, InferResponse

REQUEST = InferRequest("echo", {"x": np.ones((1, 2), np.float32)})
ANSWER = json.dumps({"model_name": "echo", "model_version": "1", "outputs": []}).encode()


class Web:
    """An HTTP server that says what it is told to. It is no Triton: that is in tests/live."""

    def __init__(self, status: int = 200, body: bytes = ANSWER) -> None:
        self.status, self.body = status, body
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.slow_s = 0.0
        self.drops = False
        self.url = ""


@contextmanager
def running(web: Web) -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            web.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            web.asked.append((self.path, headers, body))
            if web.drops:
                self.close_connection = True
                return
            self.send_response(web.status)
            self.send_header("Content-Length", str(len(web.body)))
            self.end_headers()
            for byte in range(len(web.body)) if web.slow_s else ():
                self.wfile.write(web.body[byte : byte + 1])
                time.sleep(web.slow_s)
            if not web.slow_s:
                self.wfile.write(web.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    with running(Web()) as server:
        yield server


def infer(url: str, request: InferRequest = REQUEST, timeout_s: float = 5) -> InferResponse:
    with HttpTransport(url) as transport:
        return transport.infer(request, timeout_s)


def infer_async(url: str, request: InferRequest = REQUEST, timeout_s: float = 5) -> InferResponse:
    async def ask() -> InferResponse:
        transport = AsyncHttpTransport(url)
        try:
            return await transport.infer(request, timeout_s)
        finally:
            await transport.close()

    return asyncio.run(ask())


Ask = Callable[..., InferResponse]
BOTH = pytest.mark.parametrize("ask", [infer, infer_async], ids=["sync", "asyncio"])


@BOTH
def test_a_request_is_json_and_then_the_bytes_of_its_tensors(web: Web, ask: Ask) -> None:
    inputs = {"t": np.array([["é"], [b"\xff"]], dtype=object), "x": np.ones((2, 1), np.float16)}
    request = InferRequest(
        "a/b",
        inputs,
        outputs=("y",),
        version="3",
        request_id="7",
        parameters={"lang": "de", "k": 3},
        headers={"X-Request": "9"},
    )
    assert ask(web.url, request).model == "echo"
    path, headers, body = web.asked[0]
    size = int(headers["inference-header-content-length"])
    head = json.loads(body[:size])
    assert path == "/v2/models/a%2Fb/versions/3/infer"
    assert headers["x-request"] == "9"
    assert headers["accept-encoding"] == "identity"
    assert head["inputs"][0] == {
        "name": "t",
        "shape": [2, 1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": 11},
    }
    assert head["outputs"] == [{"name": "y", "parameters": {"binary_data": True}}]
    assert (head["id"], head["parameters"]) == ("7", {"lang": "de", "k": 3})
    assert body[size:] == b"\2\0\0\0\xc3\xa9\1\0\0\0\xff" + inputs["x"].tobytes()


def test_all_outputs_are_asked_for_as_bytes() -> None:
    head = json.loads(infer_body(REQUEST)[0])
    assert head["parameters"] == {"binary_data_output": True}
    assert "outputs" not in head


@BOTH
def test_a_large_body_arrives_whole(web: Web, ask: Ask) -> None:
    """Without a limit of 2 GB, and in chunks."""
    array = np.arange(1_000_000, dtype=np.float32).reshape(1, -1)
    ask(web.url, InferRequest("echo", {"x": array, "y": array}))
    _, headers, body = web.asked[0]
    assert body[int(headers["inference-header-content-length"]) :] == array.tobytes() * 2


def body_of(*outputs: dict[str, object], raw: bytes = b"") -> tuple[str, bytes]:
    head = json.dumps({"model_name": "m", "model_version": "2", "outputs": outputs}).encode()
    return str(len(head)), head + raw


def output(size: int | None = None, **more: object) -> dict[str, object]:
    parameters = {} if size is None else {"binary_data_size": size}
    return {"name": "y", "datatype": "FP32", "shape": [2], "parameters": parameters, **more}


def test_values_in_the_json_are_read_too() -> None:
    texts = output(name="t", datatype="BYTES", data=["é", ""])
    answer = infer_response(*body_of(output(data=[1, 0.5]), texts), "m")
    assert answer.outputs["y"].tolist() == [1, 0.5]
    assert answer.outputs["t"].tolist() == ["é".encode(), b""]
    assert (answer.model, answer.version) == ("m", "2")


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (None, b"hello"),
        (None, b"[]"),
        ("9", b"{}"),
        ("x", b"{}"),
        body_of(output(8), raw=b"1234567"),
        body_of(output(8), raw=b"123456789"),
        body_of(output(7), raw=b"1234567"),
        body_of(output(8, shape=[3]), raw=b"12345678"),
        body_of(output(8, datatype="COMPLEX"), raw=b"12345678"),
        body_of(output(8, datatype="BYTES"), raw=b"\xff\xff\xff\xff1234"),
        body_of({"name": "y"}),
    ],
)
def test_an_answer_that_cannot_be_read_is_told(length: str | None, body: bytes) -> None:
    with pytest.raises(InferenceError, match="model `m`: its answer cannot be read"):
        infer_response(length, body, "m")


@BOTH
@pytest.mark.parametrize("status", [*STATUS_CODES, 418, 507])
def test_tritons_own_text_is_kept_whole(web: Web, ask: Ask, status: int) -> None:
    web.status, web.body = status, json.dumps({"error": 'boom: "é"\nin two lines'}).encode()
    with pytest.raises(WorldError) as caught:
        ask(web.url)
    if STATUS_CODES.get(status) == "DEADLINE_EXCEEDED":
        assert "no answer within 5 s" in str(caught.value)
    else:
        assert str(caught.value) == 'model `echo`: boom: "é"\nin two lines'
        assert isinstance(caught.value, InferenceError)
    assert isinstance(caught.value, NotFoundError) == (status == 404)
    assert isinstance(caught.value, NotServedError) == (status in (404, 502, 503))


def test_every_status_is_one_of_grpc() -> None:
    assert set(STATUS_CODES.values()) <= set(STATUSES)


@BOTH
@pytest.mark.parametrize("status", [502, 503])
def test_a_proxy_without_a_server_behind_it_is_nobody(web: Web, ask: Ask, status: int) -> None:
    web.status, web.body = status, b"<html>Bad Gateway</html>"
    with pytest.raises(NobodyThereError, match=f"HTTP status {status}: <html>") as caught:
        ask(web.url)
    assert caught.value.may_have_run


@BOTH
def test_what_is_no_triton_is_told(web: Web, ask: Ask) -> None:
    web.status, web.body = 404, b"nothing here"
    with pytest.raises(InferenceError, match="HTTP status 404: nothing here"):
        ask(web.url)


@BOTH
def test_nobody_at_the_address_is_told(ask: Ask) -> None:
    with pytest.raises(NobodyThereError, match=r"^127\.0\.0\.1:9: no Triton answers") as caught:
        ask("http://127.0.0.1:9")
    assert not caught.value.may_have_run
    assert "HTTP (8000 by default" in str(caught.value.hint)


@BOTH
def test_a_connection_that_breaks_may_have_reached_the_model(web: Web, ask: Ask) -> None:
    web.drops = True
    with pytest.raises(NobodyThereError, match="disconnected") as caught:
        ask(web.url)
    assert caught.value.may_have_run


@BOTH
def test_a_deadline_is_for_the_whole_answer(web: Web, ask: Ask) -> None:
    """Each byte comes in time."""
    web.slow_s = 0.05
    start = time.monotonic()
    with pytest.raises(WorldError, match=r"model `echo`: no answer within 0\.2 s"):
        ask(web.url, timeout_s=0.2)
    assert time.monotonic() - start < 1
    web.slow_s = 0


def test_connections_are_kept(web: Web) -> None:
    with HttpTransport(web.url) as transport:
        for _ in range(5):
            transport.infer(REQUEST, 5)
    assert (len(web.asked), web.connections) == (5, 1)


def test_a_server_that_is_new_behind_a_kept_connection_is_found(web: Web) -> None:
    """The first one ends and closes; another takes its address."""
    with HttpTransport(web.url, {"Authorization": "t"}) as transport:
        transport.infer(REQUEST, 5)
        web.drops = True
        with pytest.raises(NobodyThereError):
            transport.infer(REQUEST, 5)
        web.drops = False
        transport.infer(REQUEST, 5)
    assert web.asked[-1][1]["authorization"] == "t"


@pytest.mark.parametrize("url", ["127.0.0.1:8001", "grpc://127.0.0.1:8001"])
def test_an_address_of_grpc_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is not the address of an HTTP port"):
        HttpTransport(url)


def test_a_bad_header_or_certificate_is_refused_before_anything_is_sent(web: Web) -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        infer(web.url, InferRequest("echo", REQUEST.inputs, headers={"a": "b\nc"}))
    with pytest.raises(InputError, match="cannot be read"):
        HttpTransport("https://127.0.0.1:1", tls=Tls("/nowhere.pem"))
    assert not web.asked


@BOTH
def test_a_server_without_tls_is_not_spoken_to_with_it(web: Web, ask: Ask) -> None:
    with pytest.raises(MmctlError, match="no Triton answers") as caught:
        ask(web.url.replace("http", "https"))
    assert "compare `ca` of Tls" in str(caught.value.hint)
