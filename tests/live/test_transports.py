"""HTTP beside gRPC, several servers as one, and TLS: against a real Triton."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import trustme
from echo_models import NUMERIC, write_echo
from servers import Serve, assert_gone

from mmctl.client.http import AsyncHttpTransport, HttpTransport
from mmctl.client.replicas import open_server
from mmctl.client.status import NobodyThereError
from mmctl.client.tls import Tls
from mmctl.client.transport import GrpcTransport
from mmctl.errors import InferenceError, InputError, MmctlError, WorldError
from mmctl.inference import InferRequest, InferResponse
from mmctl.server.flags import Addresses, Options
from mmctl.server.guard import processes_with
from mmctl.server.ports import HOST, reserved
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime
from mmctl.server.wheel import wheel_launch
from mmctl.tensors import Array, DType

pytestmark = [pytest.mark.live, pytest.mark.alone]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("repository")
    write_echo(repository, "types", 4, **{dtype.value: (dtype, -1) for dtype in NUMERIC})
    write_echo(repository, "tag", 4, text=(DType.STRING, -1), x=(DType.FP32, -1))
    return repository


@pytest.fixture(scope="module")
def triton(serve: Serve, repository: Path) -> EmbeddedTriton:
    return serve(repository)


@pytest.fixture
def grpc(triton: EmbeddedTriton) -> Iterator[GrpcTransport]:
    with GrpcTransport(triton.grpc) as transport:
        yield transport


@pytest.fixture
def http(triton: EmbeddedTriton) -> Iterator[HttpTransport]:
    with HttpTransport(f"http://{triton.http}") as transport:
        yield transport


def texts(*items: str | bytes) -> Array:
    return np.array(items, dtype=object).reshape(-1, 1)


def ones(rows: int = 1, columns: int = 2) -> Array:
    return np.ones((rows, columns), np.float32)


TAG = InferRequest("tag", {"text": texts("a"), "x": ones()})


def tag(text: Array, x: Array, **options: object) -> InferRequest:
    return InferRequest("tag", {"text": text, "x": x}, **options)  # type: ignore[arg-type]


def extremes(dtype: DType) -> Array:
    if dtype is DType.BOOL:
        return np.array([[True, False, True]])
    name = dtype.numpy.name
    if dtype.numpy.kind == "f":
        return np.array([[np.finfo(name).min, np.inf, np.nan]], name)
    return np.array([[np.iinfo(name).min, np.iinfo(name).max, 0]], name)


def plain(answer: InferResponse) -> object:
    outputs = {
        name: (array.dtype.name, array.shape, [repr(item) for item in array.ravel().tolist()])
        for name, array in answer.outputs.items()
    }
    return outputs, answer.model, answer.version


@pytest.mark.parametrize(
    "request_",
    [
        InferRequest("types", {d.value: extremes(d) for d in NUMERIC}),
        InferRequest("types", {d.value: np.zeros((1, 0), d.numpy) for d in NUMERIC}),
        tag(texts("é你\0", b"\xff\x00", ""), ones(3, 1)),
        tag(np.empty((1, 0), object), ones()),
        tag(texts("a" * 200_000), ones(1, 300_000)),
        tag(
            texts("a"),
            ones(),
            outputs=("x_out",),
            version="1",
            request_id="7",
            parameters={"k": 2**62, "yes": True, "s": "é"},
        ),
    ],
    ids=["all types", "nothing in them", "texts", "no texts", "large", "options"],
)
def test_http_gives_the_answers_of_grpc(
    grpc: GrpcTransport, http: HttpTransport, request_: InferRequest
) -> None:
    answer = grpc.infer(request_, 10)
    assert plain(http.infer(request_, 10)) == plain(answer)
    assert {f"{name}_out" for name in request_.inputs} >= set(answer.outputs)


@pytest.mark.parametrize(
    ("request_", "timeout_s"),
    [
        (tag(texts("boom"), ones()), 10),
        (tag(texts("sleep"), ones()), 0.1),
        (InferRequest("tag", {"text": texts("a")}), 10),
        (InferRequest("tga", {"text": texts("a")}), 10),
        (tag(texts("a"), ones(), version="7"), 10),
        (tag(texts("a"), ones(), outputs=("nope",)), 10),
        (tag(texts("a"), np.ones((1, 2))), 10),
        (tag(texts("a"), ones(2)), 10),
        (tag(texts("a"), ones(), headers={"a b": "c"}), 10),
    ],
    ids=["model", "late", "input", "name", "version", "output", "type", "rows", "header"],
)
def test_http_fails_as_grpc_does(
    grpc: GrpcTransport, http: HttpTransport, request_: InferRequest, timeout_s: float
) -> None:
    errors = []
    for transport in (grpc, http):
        with pytest.raises(MmctlError) as caught:
            transport.infer(request_, timeout_s)
        errors.append((type(caught.value), str(caught.value), caught.value.hint))
    assert errors[0] == errors[1]


def test_http_describes_models_as_grpc_does(
    triton: EmbeddedTriton, grpc: GrpcTransport, http: HttpTransport
) -> None:
    for model in ("types", "tag"):
        told = http.describe(model, identify=True)
        assert told == grpc.describe(model, identify=True)
        assert told.identity.version == "1"
    assert http.candidate("tag") == grpc.candidate("tag")
    assert http.ready(5)
    with pytest.raises(InputError, match="no model `tga`") as caught:
        http.describe("tga")
    assert caught.value.hint == "did you mean `tag`?"
    with pytest.raises(InputError, match="streams of answers do not travel over HTTP"):
        http.stream(TAG)


def test_the_port_of_the_other_protocol_is_told(triton: EmbeddedTriton) -> None:
    with (
        HttpTransport(f"http://{triton.grpc}") as http,
        pytest.raises(WorldError, match="no Triton answers") as caught,
    ):
        http.ready(5)
    assert "HTTP (8000 by default" in str(caught.value.hint)


def test_threads_share_one_http_transport(http: HttpTransport) -> None:
    def ask(number: int) -> str:
        answer = http.infer(tag(texts(str(number)), ones()), 20)
        return bytes(answer.outputs["text_out"].item()).decode()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(240))) == [str(number) for number in range(240)]


def test_asyncio_has_many_http_requests_on_the_way(triton: EmbeddedTriton) -> None:
    async def ask_all() -> list[bytes]:
        transport = AsyncHttpTransport(f"http://{triton.http}")
        try:
            assert (await transport.describe("tag", identify=True)).identity.version == "1"
            with pytest.raises(InferenceError, match='the text\nsaid "boom"'):
                await transport.infer(tag(texts("boom"), ones()), 10)
            with pytest.raises(WorldError, match=r"no answer within 0\.1 s"):
                await transport.infer(tag(texts("sleep"), ones()), 0.1)
            asked = [transport.infer(tag(texts(str(n)), ones()), 20) for n in range(100)]
            return [a.outputs["text_out"].item() for a in await asyncio.gather(*asked)]
        finally:
            await transport.close()

    assert asyncio.run(ask_all()) == [str(number).encode() for number in range(100)]


def kill(server: EmbeddedTriton) -> None:
    """As the kernel would for want of memory; the supervisor then clears away."""
    (pid,) = [
        pid
        for pid in processes_with(server.shm_prefix)
        if Path(f"/proc/{pid}/comm").read_text().strip() == "tritonserver"
    ]
    os.kill(pid, signal.SIGKILL)


def test_a_server_that_is_killed_under_load_fails_no_request(
    triton: EmbeddedTriton, serve: Serve, repository: Path
) -> None:
    """Over both protocols. When it is back, it is asked again."""
    doomed = serve(repository)
    failed: list[str] = []
    answered = [0] * 8
    stop = threading.Event()
    with (
        open_server([doomed.grpc, triton.grpc]) as over_grpc,
        open_server([f"http://{doomed.http}", f"http://{triton.http}"]) as over_http,
    ):

        def ask(number: int) -> None:
            server = (over_grpc, over_http)[number % 2]
            while not stop.is_set():
                try:
                    server.infer(TAG, 10)
                    answered[number] += 1
                except MmctlError as error:
                    failed.append(str(error))

        with ThreadPoolExecutor(8) as pool:
            workers = [pool.submit(ask, number) for number in range(8)]
            time.sleep(0.5)
            before = sum(answered)
            kill(doomed)
            time.sleep(0.5)
            ports = [int(address.rpartition(":")[2]) for address in (doomed.grpc, doomed.http)]
            doomed.stop()
            back = serve(repository, grpc=ports[0], http=ports[1])
            time.sleep(2.5)
            stop.set()
            for worker in workers:
                worker.result(20)
    with GrpcTransport(back.grpc) as transport:
        asked_again = transport.counts("tag").requests
    assert failed == []
    assert before > 50
    assert asked_again > 50
    assert sum(answered) > before + 50


def test_when_all_servers_are_gone_that_is_one_error_soon() -> None:
    for urls in (["127.0.0.1:9", "127.0.0.1:10"], ["http://127.0.0.1:9", "http://127.0.0.1:10"]):
        start = time.monotonic()
        with open_server(urls) as server, pytest.raises(NobodyThereError, match="none of 2"):
            server.infer(TAG)
        assert time.monotonic() - start < 3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    for name in ("", "other_"):
        ca = trustme.CA()
        ca.cert_pem.write_to_path(folder / f"{name}ca.pem")
        for role in ("server", "client"):
            pair = ca.issue_cert(HOST)
            pair.cert_chain_pems[0].write_to_path(folder / f"{name}{role}.pem")
            pair.private_key_pem.write_to_path(folder / f"{name}{role}.key")
    return folder


@contextmanager
def mutual_tls_triton(runtime: Runtime, repository: Path, folder: Path) -> Iterator[str]:
    """A Triton that speaks TLS on its gRPC port, to those that show a certificate: its address."""
    with reserved([(name, 0) for name in ("http", "grpc", "metrics")]) as ports:
        launch = wheel_launch(runtime, repository, Addresses(HOST, *ports), Options())
    flags = {
        "use-ssl-mutual": "true",
        "server-cert": folder / "server.pem",
        "server-key": folder / "server.key",
        "root-cert": folder / "ca.pem",
    }
    command = [*launch.argv, *(f"--grpc-{name}={value}" for name, value in flags.items())]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **launch.env}, stdout=log, stderr=log
        )
    try:
        yield f"grpcs://{HOST}:{ports[1]}"
    finally:
        process.terminate()
        process.wait(30)
        assert_gone(launch.shm_prefix)


def test_grpc_over_tls_with_a_certificate_of_the_client(
    runtime: Runtime, repository: Path, certificates: Path
) -> None:
    """Triton itself has no TLS on its HTTP port: there a proxy stands in front of it."""
    ca = certificates / "ca.pem"
    own = Tls(ca, certificates / "client.pem", certificates / "client.key")
    with mutual_tls_triton(runtime, repository, certificates) as url:
        with GrpcTransport(url, tls=own) as transport:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                try:
                    transport.ready(5)
                    break
                except NobodyThereError:
                    time.sleep(0.1)
            assert transport.infer(TAG, 10).model == "tag"
        for tls in (
            Tls(ca),
            Tls(certificates / "other_ca.pem", own.cert, own.key),
            Tls(ca, certificates / "other_client.pem", certificates / "other_client.key"),
        ):
            with GrpcTransport(url, tls=tls) as stranger, pytest.raises(NobodyThereError):
                stranger.ready(5)
        with GrpcTransport(url, tls=Tls(certificates / "other_ca.pem")) as stranger:
            with pytest.raises(NobodyThereError, match=r"(?i)certificate") as caught:
                stranger.ready(5)
            assert "compare `ca` of Tls" in str(caught.value.hint)
