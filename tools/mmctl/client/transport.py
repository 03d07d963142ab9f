"""The seam between us and a server: a request goes in, an answer comes out. Here over gRPC.

The only module that knows tritonclient, which costs 0.2 s to import: when the first call is near.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, Self

from mmctl.client.messages import (
    MAX_MESSAGE_BYTES,
    counts_of,
    entries_of,
    loaded_of,
    request_message,
    response_of,
    share_of,
    signature_of,
)
from mmctl.client.status import Counts, Failure, IndexEntry, NotFoundError, error_of, unknown_model
from mmctl.errors import InferenceError, InputError, MmctlError, WorldError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Signature
from mmctl.triton.repository import NEXT

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a restarted server is found again soon
)
_ASIDE_S = 2.0
"""A question beside the request must not hold it up for longer."""


class Transport(Protocol):
    """The seam. Caches, canaries and fakes stand here."""

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        """Raises InferenceError with Triton's text, WorldError when no answer came."""
        ...


class AsyncTransport(Protocol):
    """The same seam for asyncio."""

    async def infer(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> InferResponse: ...


class Catalog(Protocol):
    """What a server says about its models: asked once per model, not per request."""

    def signature(self, model: str, version: str = "") -> Signature:
        """Raises InputError, with the nearest name, for a model the server does not have."""
        ...

    def share(self, model: str) -> float:
        """How many percent of the requests its candidate takes; 0 when it has none, or the server
        does not say.
        """
        ...


class AsyncCatalog(Protocol):
    """The same for asyncio."""

    async def signature(self, model: str, version: str = "") -> Signature: ...

    async def share(self, model: str) -> float: ...


class GrpcTransport:
    """Transport and Catalog of one Triton. Threads may share it; it connects when first used."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        import grpc

        self.address = parse_address(url)
        self._headers = dict(headers or {})
        self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)
        self._stub = _stub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        message = request_message(_pb().ModelInferRequest, request)
        where = _name_of(request.model, request.version)
        call = self._stub.ModelInfer
        return response_of(self._send(call, message, where, request.headers, timeout_s))

    def stream(
        self, request: InferRequest, timeout_s: float | None = None
    ) -> Iterator[InferResponse]:
        """Every answer to one request, as it comes: what a decoupled model takes. `timeout_s` is
        for all of them. Raises like `infer`.
        """
        import grpc

        message = request_message(_pb().ModelInferRequest, request)
        where = _name_of(request.model, request.version)
        metadata = _metadata({**self._headers, **request.headers})
        try:
            answers = self._stub.ModelStreamInfer(
                iter([message]), timeout=timeout_s, metadata=metadata
            )
            for answer in answers:
                if answer.error_message:
                    raise InferenceError(f"{where}: {answer.error_message}")
                yield response_of(answer.infer_response)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error

    def signature(self, model: str, version: str = "") -> Signature:
        message = _pb().ModelConfigRequest(name=model, version=version)
        try:
            answer = self._send(self._stub.ModelConfig, message, _name_of(model, version))
        except NotFoundError as error:
            raise self._explain(error, model, version) from error
        return signature_of(answer.config)

    def share(self, model: str) -> float:
        message = _pb().ModelConfigRequest(name=model + NEXT)
        try:
            answer = self._send(self._stub.ModelConfig, message, model + NEXT, timeout_s=_ASIDE_S)
        except WorldError:
            return 0.0
        return share_of(answer.config)

    def counts(self, model: str) -> Counts:
        """Raises InferenceError for a model that is not served."""
        message = _pb().ModelStatisticsRequest(name=model)
        return counts_of(self._send(self._stub.ModelStatistics, message, _name_of(model, "")))

    def ready(self) -> bool:
        """Whether the server says so. Raises WorldError when there is none."""
        answer = self._send(self._stub.ServerReady, _pb().ServerReadyRequest(), self.address)
        return bool(answer.ready)

    def index(self) -> tuple[IndexEntry, ...]:
        """Every version of every model in the server's repository, loaded or not."""
        message = _pb().RepositoryIndexRequest()
        return entries_of(self._send(self._stub.RepositoryIndex, message, self.address))

    def load(self, model: str, timeout_s: float | None = None) -> None:
        """Load what has changed of a model. Raises InferenceError with Triton's reason, which is
        often only that it failed.
        """
        message = _pb().RepositoryModelLoadRequest(model_name=model)
        call = self._stub.RepositoryModelLoad
        self._send(call, message, _name_of(model, ""), timeout_s=timeout_s)

    def unload(self, model: str, timeout_s: float | None = None) -> None:
        """Triton says yes for a model that it does not know, too."""
        message = _pb().RepositoryModelUnloadRequest(model_name=model)
        call = self._stub.RepositoryModelUnload
        self._send(call, message, _name_of(model, ""), timeout_s=timeout_s)

    def _explain(self, error: MmctlError, model: str, version: str) -> MmctlError:
        # The index may be closed to us. Where statistics are as well, Triton's own words must do.
        for list_models, only_loaded in ((self.index, False), (self._loaded, True)):
            with suppress(WorldError):
                index = list_models()
                return unknown_model(model, version, self.address, index, only_loaded=only_loaded)
        return error

    def _loaded(self) -> tuple[IndexEntry, ...]:
        message = _pb().ModelStatisticsRequest()
        return loaded_of(self._send(self._stub.ModelStatistics, message, self.address))

    def _send(
        self,
        call: Any,
        message: Any,
        where: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        import grpc

        metadata = _metadata({**self._headers, **(headers or {})})
        try:
            return call(message, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error


class AsyncGrpcTransport:
    """AsyncTransport and AsyncCatalog of one Triton. Make it inside the event loop it serves."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        import grpc.aio

        self.address = parse_address(url)
        self._headers = dict(headers or {})
        self._channel = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        self._stub = _stub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        message = request_message(_pb().ModelInferRequest, request)
        where = _name_of(request.model, request.version)
        call = self._stub.ModelInfer
        return response_of(await self._send(call, message, where, request.headers, timeout_s))

    async def signature(self, model: str, version: str = "") -> Signature:
        message = _pb().ModelConfigRequest(name=model, version=version)
        try:
            answer = await self._send(self._stub.ModelConfig, message, _name_of(model, version))
        except NotFoundError as error:
            raise await self._explain(error, model, version) from error
        return signature_of(answer.config)

    async def share(self, model: str) -> float:
        message = _pb().ModelConfigRequest(name=model + NEXT)
        call = self._stub.ModelConfig
        try:
            answer = await self._send(call, message, model + NEXT, timeout_s=_ASIDE_S)
        except WorldError:
            return 0.0
        return share_of(answer.config)

    async def _explain(self, error: MmctlError, model: str, version: str) -> MmctlError:
        pb, stub = _pb(), self._stub
        for call, message, entries, only_loaded in (  # as in GrpcTransport
            (stub.RepositoryIndex, pb.RepositoryIndexRequest(), entries_of, False),
            (stub.ModelStatistics, pb.ModelStatisticsRequest(), loaded_of, True),
        ):
            with suppress(WorldError):
                index = entries(await self._send(call, message, self.address))
                return unknown_model(model, version, self.address, index, only_loaded=only_loaded)
        return error

    async def _send(
        self,
        call: Any,
        message: Any,
        where: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        import grpc

        metadata = _metadata({**self._headers, **(headers or {})})
        try:
            return await call(message, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise _error_of(error, where, self.address, timeout_s) from error


def parse_address(url: str) -> str:
    """`host:port` of `grpc://host:port` or `host:port`."""
    match = re.fullmatch(r"(?:grpc://)?((?:\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5})/?", url)
    if match is None:
        raise InputError(
            f"`{url}` is not the address of a gRPC port",
            hint="write `host:port` or `grpc://host:port`; Triton's gRPC port is 8001 by default",
        )
    return match[1]


def _pb() -> Any:
    from tritonclient.grpc import service_pb2

    return service_pb2


def _stub(channel: Any) -> Any:
    from tritonclient.grpc import service_pb2_grpc

    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def _name_of(model: str, version: str) -> str:
    return f"model `{model}`" + (f" version {version}" if version else "")


def _error_of(error: Any, where: str, address: str, timeout_s: float | None) -> WorldError:
    failure = Failure(error.code().name, error.details() or "", where, address, timeout_s)
    return error_of(failure)


def _metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in headers.items():
        if not re.fullmatch(r"[0-9A-Za-z_.-]+", name) or not re.fullmatch(r"[ -~]*", value):
            raise InputError(
                f"header `{name}` cannot be sent", hint="use ASCII only, and no spaces in its name"
            )
    return tuple((name.lower(), value) for name, value in headers.items())
