"""The same seam over HTTP: KServe's protocol, tensors as raw bytes behind the JSON as Triton
extends it. Without the 2 GB of a gRPC message, and without streams.

What is exchanged is thought out once and done by HttpTransport in threads, by AsyncHttpTransport in
asyncio. httpx2 costs 0.1 s to import: when the first transport is made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self
from urllib.parse import quote

from mmctl.client.description import Candidacy, Description
from mmctl.client.http_messages import (
    LENGTH_HEADER,
    error_text,
    infer_body,
    infer_response,
    status_code,
)
from mmctl.client.messages import entries_of, loaded_of
from mmctl.client.questions import Questions
from mmctl.client.status import Failure, IndexEntry, error_of
from mmctl.client.tls import Tls, parse_url
from mmctl.client.transport import CONNECT_S, checked_headers, name_of, read_json
from mmctl.effects import Steps, T, adrive, drive
from mmctl.errors import InputError, WorldError
from mmctl.inference import InferRequest, InferResponse

CHUNK_BYTES = 1 << 20
"""A large body is sent in such chunks: what httpx2 is given at once, it copies again and again."""

_KEPT_CONNECTIONS = 256
"""So many idle connections stay open for the next requests; more are made when they are needed."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of HTTP; `where` is what an error is about. `parts` are the body."""

    method: str
    path: str
    where: str
    timeout_s: float | None
    headers: Mapping[str, str]
    parts: Sequence[bytes] = ()

    @property
    def is_large(self) -> bool:
        return sum(map(len, self.parts)) > CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Calls(Questions):
    """What to exchange for each question, and how to read what comes. Yields Exchange, is sent a
    Reply. Pure.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None, tls: Tls | None) -> None:
        address = parse_url(url, tls)
        if address.protocol != "http":
            raise InputError(
                f"`{url}` is not the address of an HTTP port",
                hint="write `http://host:port`; Triton's HTTP port is 8000 by default",
            )
        self.address = address.place
        self.tls = address.tls
        self.base = f"{'http' if address.tls is None else 'https'}://{address.place}"
        self._headers = dict(headers or {})

    def infer(self, request: InferRequest, timeout_s: float | None) -> Steps[InferResponse]:
        where = name_of(request.model, request.version)
        parts = infer_body(request)
        headers = {
            LENGTH_HEADER: str(len(parts[0])),
            "Content-Type": "application/octet-stream",
            "Content-Length": str(sum(map(len, parts))),
        }
        path = f"{_path(request.model, request.version)}/infer"
        reply = yield from self._asked(
            "POST", path, where, timeout_s, {**request.headers, **headers}, parts
        )
        return infer_response(reply.headers.get(LENGTH_HEADER.lower()), reply.body, request.model)

    def ready(self, timeout_s: float | None) -> Steps[bool]:
        """Triton says 400 where it is not; the names of models are nobody's here."""
        exchange = self._exchange("GET", "/v2/health/ready", self.address, timeout_s)
        reply: Reply = yield exchange
        return reply.status == 200

    def config(self, model: str, version: str, timeout_s: float | None) -> Steps[Any]:
        path, where = f"{_path(model, version)}/config", name_of(model, version)
        reply = yield from self._asked("GET", path, where, timeout_s)
        return read_json("ModelConfig", reply.body)

    def versions(self, model: str, timeout_s: float | None) -> Steps[Sequence[str]]:
        reply = yield from self._asked("GET", _path(model), name_of(model, ""), timeout_s)
        return list(read_json("ModelMetadataResponse", reply.body).versions)

    def index(self) -> Steps[tuple[IndexEntry, ...]]:
        reply = yield from self._asked("POST", "/v2/repository/index", self.address, None)
        message = read_json("RepositoryIndexResponse", b'{"models":%s}' % reply.body)
        return entries_of(message)

    def loaded(self) -> Steps[tuple[IndexEntry, ...]]:
        reply = yield from self._asked("GET", "/v2/models/stats", self.address, None)
        return loaded_of(read_json("ModelStatisticsResponse", reply.body))

    def _asked(
        self,
        method: str,
        path: str,
        where: str,
        timeout_s: float | None,
        headers: Mapping[str, str] | None = None,
        parts: Sequence[bytes] = (),
    ) -> Steps[Reply]:
        """Raises what the status means; Triton's own text is kept whole."""
        reply: Reply = yield self._exchange(method, path, where, timeout_s, headers, parts)
        if reply.status != 200:
            code, text = status_code(reply.status), error_text(reply.status, reply.body)
            raise self._error(code, text, where, timeout_s)
        return reply

    def _exchange(
        self,
        method: str,
        path: str,
        where: str,
        timeout_s: float | None,
        headers: Mapping[str, str] | None = None,
        parts: Sequence[bytes] = (),
    ) -> Exchange:
        sent = dict(checked_headers({**self._headers, **(headers or {})}))
        return Exchange(method, path, where, timeout_s, sent, parts)

    def failed(self, error: Exception, exchange: Exchange) -> WorldError:
        """What an error of httpx2 means: nobody there, or too late."""
        import httpx2

        if isinstance(error, TimeoutError | httpx2.TimeoutException) and not isinstance(
            error, httpx2.ConnectTimeout
        ):
            return self._error("DEADLINE_EXCEEDED", "", exchange.where, exchange.timeout_s)
        why = str(error) or type(error).__name__
        connected = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        text = f"disconnected: {why}" if connected else f"failed to connect: {why}"
        return self._error("UNAVAILABLE", text, exchange.where, exchange.timeout_s)

    def _error(self, code: str, text: str, where: str, timeout_s: float | None) -> WorldError:
        return error_of(Failure(code, text, where, self.address, timeout_s, "http"))


class HttpTransport:
    """Transport and Catalog of one Triton. Threads may share it: each request has a connection of
    a pool to itself.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, tls: Tls | None = None
    ) -> None:
        import httpx2

        self._calls = Calls(url, headers, tls)
        self.address = self._calls.address
        self._http = httpx2.Client(**_settings(self._calls))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        return self._done(self._calls.infer(request, timeout_s))

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> Iterator[InferResponse]:
        _refuse_stream(request)

    def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        steps = self._calls.describe(model, version, identify=identify, timeout_s=timeout_s)
        return self._done(steps)

    def candidate(self, model: str) -> Candidacy:
        return self._done(self._calls.candidate(model))

    def ready(self, timeout_s: float | None = None) -> bool:
        """Raises WorldError when there is no server."""
        return self._done(self._calls.ready(timeout_s))

    def _done(self, steps: Steps[T]) -> T:
        return drive(steps, self._perform)

    def _perform(self, exchange: Exchange) -> Reply:
        """httpx2's own limits are for each read and write: the whole is watched here."""
        import httpx2

        until = None if exchange.timeout_s is None else time.monotonic() + exchange.timeout_s
        try:
            with self._http.stream(
                exchange.method,
                self._calls.base + exchange.path,
                content=_chunks(exchange.parts) if exchange.is_large else b"".join(exchange.parts),
                headers=exchange.headers,
                timeout=_limits(exchange.timeout_s),
            ) as reply:
                chunks = []
                for chunk in reply.iter_raw():
                    chunks.append(chunk)
                    if until is not None and time.monotonic() > until:
                        raise TimeoutError
                return Reply(reply.status_code, reply.headers, b"".join(chunks))
        except (httpx2.TransportError, TimeoutError) as error:
            raise self._calls.failed(error, exchange) from error


class AsyncHttpTransport:
    """AsyncTransport and AsyncCatalog of one Triton. Make it inside the event loop it serves."""

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, tls: Tls | None = None
    ) -> None:
        import httpx2

        self._calls = Calls(url, headers, tls)
        self.address = self._calls.address
        self._http = httpx2.AsyncClient(**_settings(self._calls))

    async def close(self) -> None:
        await self._http.aclose()

    async def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        return await self._done(self._calls.infer(request, timeout_s))

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        _refuse_stream(request)

    async def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        steps = self._calls.describe(model, version, identify=identify, timeout_s=timeout_s)
        return await self._done(steps)

    async def candidate(self, model: str) -> Candidacy:
        return await self._done(self._calls.candidate(model))

    async def ready(self, timeout_s: float | None = None) -> bool:
        return await self._done(self._calls.ready(timeout_s))

    async def _done(self, steps: Steps[T]) -> T:
        return await adrive(steps, self._perform)

    async def _perform(self, exchange: Exchange) -> Reply:
        import httpx2

        try:
            async with asyncio.timeout(exchange.timeout_s):
                reply = await self._http.request(
                    exchange.method,
                    self._calls.base + exchange.path,
                    content=_awaited_chunks(exchange.parts)
                    if exchange.is_large
                    else b"".join(exchange.parts),
                    headers=exchange.headers,
                    timeout=_limits(exchange.timeout_s),
                )
                return Reply(reply.status_code, reply.headers, reply.content)
        except (httpx2.TransportError, TimeoutError) as error:
            raise self._calls.failed(error, exchange) from error


def _settings(calls: Calls) -> dict[str, Any]:
    """No proxy of the environment, which gRPC would not go through either; nothing compressed."""
    import httpx2

    return {
        "verify": calls.tls.context() if calls.tls is not None else False,  # False: plain HTTP
        "trust_env": False,
        "headers": {"Accept-Encoding": "identity"},
        "limits": httpx2.Limits(
            max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS, keepalive_expiry=60
        ),
    }


def _chunks(parts: Sequence[bytes]) -> Iterator[bytes]:
    for part in parts:
        for first in range(0, len(part), CHUNK_BYTES):
            yield part[first : first + CHUNK_BYTES]


async def _awaited_chunks(parts: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in _chunks(parts):
        yield chunk


def _limits(timeout_s: float | None) -> Any:
    import httpx2

    connect = CONNECT_S if timeout_s is None else min(CONNECT_S, timeout_s)
    return httpx2.Timeout(timeout_s, connect=connect)


def _path(model: str, version: str = "") -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _refuse_stream(request: InferRequest) -> NoReturn:
    raise InputError(
        f"model `{request.model}`: streams of answers do not travel over HTTP",
        hint="use the address of the gRPC port (8001 by default)",
    )
