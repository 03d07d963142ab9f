"""The seam between us and a server: a request goes in, an answer comes out. Here over gRPC.

The only module that knows tritonclient, which costs 0.2 s to import: when the first call is near.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from mmctl.client.description import Candidacy, Description
from mmctl.client.messages import (
    MAX_MESSAGE_BYTES,
    counts_of,
    entries_of,
    loaded_of,
    request_message,
    response_of,
)
from mmctl.client.questions import Questions
from mmctl.client.statistics import ModelStatistics, statistics_of
from mmctl.client.status import Counts, Failure, IndexEntry, error_of
from mmctl.client.tls import Address, Tls, not_grpc, parse_url
from mmctl.effects import Steps, T, adrive, drive
from mmctl.errors import InferenceError, InputError, WorldError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Signature
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import config_of

CONNECT_S = 3
"""A host that does not answer at all is given up after so long."""

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),  # a restarted server is found again soon
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", CONNECT_S * 1000),  # so long may connecting take
)


class Transport(Protocol):
    """The seam. Caches, canaries and fakes stand here."""

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        """Raises InferenceError with Triton's text, WorldError when no answer came."""
        ...

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> Iterator[InferResponse]:
        """Every answer to one request, as it comes; `timeout_s` is for all. Raises like `infer`."""
        ...


class AsyncTransport(Protocol):
    """The same seam for asyncio."""

    async def infer(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> InferResponse: ...

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> AsyncGenerator[InferResponse, None]: ...


class Catalog(Protocol):
    """What a server says about its models: asked once per model, not per request."""

    def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        """To `identify` a model, it is also asked which version answers. Raises InputError, with
        the nearest name, for a model the server does not have.
        """
        ...

    def candidate(self, model: str) -> Candidacy:
        """NO_CANDIDATE, too, when the server does not say."""
        ...


class AsyncCatalog(Protocol):
    """The same for asyncio."""

    async def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description: ...

    async def candidate(self, model: str) -> Candidacy: ...


class Server(Transport, Catalog, Protocol):
    """What a client needs of a server."""

    def ready(self, timeout_s: float | None = None) -> bool:
        """Raises WorldError when there is no server."""
        ...

    def close(self) -> None: ...


class AsyncServer(AsyncTransport, AsyncCatalog, Protocol):
    """The same for asyncio."""

    async def ready(self, timeout_s: float | None = None) -> bool: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Rpc:
    """One call of gRPC that is no inference; `where` is what an error is about."""

    method: str
    message: Any
    where: str
    timeout_s: float | None = None


class GrpcQuestions(Questions):
    """Yields Rpc, is sent what answers it. Pure."""

    def __init__(self, address: str) -> None:
        self.address = address

    def config(self, model: str, version: str, timeout_s: float | None) -> Steps[Any]:
        message = _pb().ModelConfigRequest(name=model, version=version)
        answer = yield Rpc("ModelConfig", message, name_of(model, version), timeout_s)
        return answer.config

    def versions(self, model: str, timeout_s: float | None) -> Steps[Sequence[str]]:
        message = _pb().ModelMetadataRequest(name=model)
        answer = yield Rpc("ModelMetadata", message, name_of(model, ""), timeout_s)
        return list(answer.versions)

    def index(self) -> Steps[tuple[IndexEntry, ...]]:
        return entries_of(
            (yield Rpc("RepositoryIndex", _pb().RepositoryIndexRequest(), self.address))
        )

    def loaded(self) -> Steps[tuple[IndexEntry, ...]]:
        return loaded_of(
            (yield Rpc("ModelStatistics", _pb().ModelStatisticsRequest(), self.address))
        )


class GrpcTransport:
    """Transport and Catalog of one Triton. Threads may share it; it connects when first used."""

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, tls: Tls | None = None
    ) -> None:
        import grpc

        address = _grpc_address(url, tls)
        self.address = address.place
        self._questions = GrpcQuestions(self.address)
        self._headers = dict(headers or {})
        self._channel = _channel(grpc, address)
        self._stub = _stub(self._channel)
        self._infer, self._request = self._stub.ModelInfer, _pb().ModelInferRequest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        message = request_message(self._request, request)
        where = name_of(request.model, request.version)
        return response_of(self._send(self._infer, message, where, request.headers, timeout_s))

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> Iterator[InferResponse]:
        """Every answer to one request, as it comes: what a decoupled model takes. `timeout_s` is
        for all of them. Raises like `infer`.
        """
        import grpc

        message = request_message(_pb().ModelInferRequest, request)
        where = name_of(request.model, request.version)
        metadata = checked_headers({**self._headers, **request.headers})
        answers = self._stub.ModelStreamInfer(iter([message]), timeout=timeout_s, metadata=metadata)
        try:
            for answer in answers:
                if answer.error_message:
                    raise InferenceError(f"{where}: {answer.error_message}")
                yield response_of(answer.infer_response)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error
        finally:
            answers.cancel()  # what nobody waits for any more

    def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        steps = self._questions.describe(model, version, identify=identify, timeout_s=timeout_s)
        return self._done(steps)

    def config(self, model: str, version: str = "") -> ModelConfig:
        """What the server runs of a model. Raises InputError for one it does not have."""
        return config_of(self._done(self._questions.known_config(model, version)))

    def signature(self, model: str, version: str = "") -> Signature:
        return self.describe(model, version).signature

    def candidate(self, model: str) -> Candidacy:
        return self._done(self._questions.candidate(model))

    def counts(self, model: str) -> Counts:
        """Raises InferenceError for a model that is not served."""
        message = _pb().ModelStatisticsRequest(name=model)
        return counts_of(self._send(self._stub.ModelStatistics, message, name_of(model, "")))

    def statistics(self) -> tuple[ModelStatistics, ...]:
        """Of every version that is loaded."""
        message = _pb().ModelStatisticsRequest()
        return statistics_of(self._send(self._stub.ModelStatistics, message, self.address))

    def ready(self, timeout_s: float | None = None) -> bool:
        """Whether the server says so. Raises WorldError when there is none."""
        message = _pb().ServerReadyRequest()
        answer = self._send(self._stub.ServerReady, message, self.address, timeout_s=timeout_s)
        return bool(answer.ready)

    def version(self) -> str:
        """Triton's own, `2.51.0`."""
        message = _pb().ServerMetadataRequest()
        return str(self._send(self._stub.ServerMetadata, message, self.address).version)

    def index(self) -> tuple[IndexEntry, ...]:
        """Every version of every model in the server's repository, loaded or not."""
        return self._done(self._questions.index())

    def load(self, model: str, timeout_s: float | None = None) -> None:
        """Load what has changed of a model. Raises InferenceError with Triton's reason, which is
        often only that it failed.
        """
        message = _pb().RepositoryModelLoadRequest(model_name=model)
        call = self._stub.RepositoryModelLoad
        self._send(call, message, name_of(model, ""), timeout_s=timeout_s)

    def unload(self, model: str, timeout_s: float | None = None) -> None:
        """Triton says yes for a model that it does not know, too."""
        message = _pb().RepositoryModelUnloadRequest(model_name=model)
        call = self._stub.RepositoryModelUnload
        self._send(call, message, name_of(model, ""), timeout_s=timeout_s)

    def _done(self, steps: Steps[T]) -> T:
        return drive(steps, self._perform)

    def _perform(self, rpc: Rpc) -> Any:
        call = getattr(self._stub, rpc.method)
        return self._send(call, rpc.message, rpc.where, timeout_s=rpc.timeout_s)

    def _send(
        self,
        call: Any,
        message: Any,
        where: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        import grpc

        metadata = checked_headers({**self._headers, **(headers or {})})
        try:
            return call(message, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error


class AsyncGrpcTransport:
    """AsyncTransport and AsyncCatalog of one Triton. Make it inside the event loop it serves."""

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, tls: Tls | None = None
    ) -> None:
        import grpc.aio

        address = _grpc_address(url, tls)
        self.address = address.place
        self._questions = GrpcQuestions(self.address)
        self._headers = dict(headers or {})
        self._channel = _channel(grpc.aio, address)
        self._stub = _stub(self._channel)
        self._infer, self._request = self._stub.ModelInfer, _pb().ModelInferRequest

    async def close(self) -> None:
        await self._channel.close()

    async def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        message = request_message(self._request, request)
        where = name_of(request.model, request.version)
        sent = self._send(self._infer, message, where, request.headers, timeout_s)
        return response_of(await sent)

    async def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        """As GrpcTransport.stream."""
        import grpc

        message = request_message(_pb().ModelInferRequest, request)
        where = name_of(request.model, request.version)
        metadata = checked_headers({**self._headers, **request.headers})
        answers = self._stub.ModelStreamInfer(iter([message]), timeout=timeout_s, metadata=metadata)
        try:
            async for answer in answers:
                if answer.error_message:
                    raise InferenceError(f"{where}: {answer.error_message}")
                yield response_of(answer.infer_response)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error
        finally:
            answers.cancel()

    async def describe(
        self,
        model: str,
        version: str = "",
        *,
        identify: bool = False,
        timeout_s: float | None = None,
    ) -> Description:
        steps = self._questions.describe(model, version, identify=identify, timeout_s=timeout_s)
        return await self._done(steps)

    async def candidate(self, model: str) -> Candidacy:
        return await self._done(self._questions.candidate(model))

    async def ready(self, timeout_s: float | None = None) -> bool:
        message = _pb().ServerReadyRequest()
        call = self._stub.ServerReady
        return bool((await self._send(call, message, self.address, timeout_s=timeout_s)).ready)

    async def _done(self, steps: Steps[T]) -> T:
        return await adrive(steps, self._perform)

    async def _perform(self, rpc: Rpc) -> Any:
        call = getattr(self._stub, rpc.method)
        return await self._send(call, rpc.message, rpc.where, timeout_s=rpc.timeout_s)

    async def _send(
        self,
        call: Any,
        message: Any,
        where: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        import grpc

        metadata = checked_headers({**self._headers, **(headers or {})})
        try:
            return await call(message, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error


def parse_address(url: str) -> str:
    """`host:port` of `grpc://host:port` or `host:port`; where TLS is wanted, `grpcs://host:port`."""
    address = _grpc_address(url, None)
    return address.place if address.tls is None else f"grpcs://{address.place}"


def _grpc_address(url: str, tls: Tls | None) -> Address:
    address = parse_url(url, tls)
    if address.protocol != "grpc":
        raise not_grpc(url)
    return address


def open_channel(url: str, tls: Tls | None = None) -> Any:
    """A channel of asyncio's gRPC, for calls that are made without a transport. Make it inside the
    event loop that it serves, and close it.
    """
    import grpc.aio

    return _channel(grpc.aio, _grpc_address(url, tls))


def _channel(made_by: Any, address: Address) -> Any:
    """`made_by` is grpc or grpc.aio."""
    if address.tls is None:
        return made_by.insecure_channel(address.place, options=_OPTIONS)
    import grpc

    credentials = grpc.ssl_channel_credentials(*address.tls.grpc_parts())
    return made_by.secure_channel(address.place, credentials, options=_OPTIONS)


def read_json(kind: str, text: bytes) -> Any:
    """A message of gRPC out of what Triton says over HTTP: the same, as JSON. Raises WorldError."""
    from google.protobuf import json_format
    from tritonclient.grpc import model_config_pb2

    message = getattr(_pb(), kind, None) or getattr(model_config_pb2, kind)
    try:
        return json_format.Parse(text, message(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise WorldError(
            f"what came is not the answer of a Triton: {error}", hint="check the address"
        ) from error


def _pb() -> Any:
    from tritonclient.grpc import service_pb2

    return service_pb2


def _stub(channel: Any) -> Any:
    from tritonclient.grpc import service_pb2_grpc

    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def name_of(model: str, version: str) -> str:
    return f"model `{model}`" + (f" version {version}" if version else "")


def _error_of(error: Any, where: str, address: str, timeout_s: float | None) -> WorldError:
    failure = Failure(error.code().name, error.details() or "", where, address, timeout_s)
    return error_of(failure)


def checked_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """With names in lower case. Raises InputError for what cannot travel."""
    if not headers:
        return ()
    for name, value in headers.items():
        if not re.fullmatch(r"[0-9A-Za-z_.-]+", name) or not re.fullmatch(r"[ -~]*", value):
            raise InputError(
                f"header `{name}` cannot be sent", hint="use ASCII only, and no spaces in its name"
            )
    return tuple((name.lower(), value) for name, value in headers.items())
