"""The client for asyncio: the same rules, awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, Self

from mmctl.client.canary import Canaries
from mmctl.client.requests import readable, request_for
from mmctl.client.status import NotServedError
from mmctl.client.transport import AsyncCatalog, AsyncGrpcTransport, AsyncTransport
from mmctl.errors import InferenceError, InputError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Signature


class AsyncServer(AsyncTransport, AsyncCatalog, Protocol):
    """What an asyncio client needs of a server."""

    async def close(self) -> None: ...


class AsyncClient:
    """Calls the models of one Triton from asyncio. Make it inside the running event loop.

        async with AsyncClient("127.0.0.1:8001") as client:
            answer = await client.infer("tag", {"text": ["good", "bad"]})

    `headers` and `server` are as in Client.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        server: AsyncServer | None = None,
    ) -> None:
        self._server = AsyncGrpcTransport(url, headers) if server is None else server
        self._signatures: dict[tuple[str, str], Signature] = {}
        self._canaries = Canaries()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._server.close()

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, object],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        timeout_s: float | None = None,
        request_id: str = "",
        key: str | bytes = "",
        parameters: Mapping[str, str | int | bool] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> InferResponse:
        """One request, as Client.infer. Cancelling the task cancels the request."""

        def make(signature: Signature) -> InferRequest:
            return request_for(
                model,
                inputs,
                signature,
                outputs=outputs,
                version=version,
                request_id=request_id,
                parameters=parameters,
                headers=headers,
            )

        request = await self._checked(model, version, make)
        try:
            return readable(await self._send(request, key, timeout_s))
        except InferenceError:
            self._signatures.pop((model, version), None)
            raise

    async def signature(self, model: str, version: str = "") -> Signature:
        """What the model takes and gives, as the server says now; text is `bytes` there."""
        signature = await self._server.signature(model, version)
        self._signatures[model, version] = signature
        return signature

    async def _send(
        self, request: InferRequest, key: str | bytes, timeout_s: float | None
    ) -> InferResponse:
        """To the candidate when it is one of its share. Where that is gone the live one answers."""
        if self._canaries.asks(request):
            self._canaries.learn(request.model, await self._server.share(request.model))
        if (candidate := self._canaries.candidate_for(request, key)) is not None:
            try:
                return await self._server.infer(candidate, timeout_s)
            except NotServedError:
                self._canaries.learn(request.model, 0.0)
        return await self._server.infer(request, timeout_s)

    async def _checked(
        self, model: str, version: str, make: Callable[[Signature], InferRequest]
    ) -> InferRequest:
        if (known := self._signatures.get((model, version))) is not None:
            with suppress(InputError):
                return make(known)
        return make(await self.signature(model, version))
