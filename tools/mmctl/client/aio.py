"""The client for asyncio: the same rules, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from mmctl.client.core import Call, Core, merged
from mmctl.client.performers import Tasks
from mmctl.client.replicas import open_async_server
from mmctl.client.retries import RETRIES, Retries
from mmctl.client.sequences import Progress
from mmctl.client.tls import Tls
from mmctl.client.transport import AsyncServer
from mmctl.inference import InferResult
from mmctl.tensors import Signature

if TYPE_CHECKING:
    from mmctl.cache.cache import Cache


class AsyncClient:
    """Client for asyncio. Make it inside the running event loop.

        async with AsyncClient("127.0.0.1:8001") as client:
            answer = await client.infer("tag", text=["good", "bad"])

    The arguments are those of Client.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        retries: Retries = RETRIES,
        cache: Cache | None = None,
        server: AsyncServer | None = None,
    ) -> None:
        self._server = open_async_server(url, headers, tls, retries) if server is None else server
        self._core = Core(cache, headers=headers)
        self._tasks = Tasks(self._server, cache)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._tasks.close()
        await self._server.close()

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, object] | None = None,
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        timeout_s: float | None = None,
        request_id: str = "",
        key: str | bytes = "",
        parameters: Mapping[str, str | int | bool] | None = None,
        headers: Mapping[str, str] | None = None,
        no_store: bool = False,
        tenant: str | None = None,
        **values: object,
    ) -> InferResult:
        """One request, as Client.infer. Cancelling the task cancels the request."""
        call = Call(
            model,
            merged(inputs, values),
            outputs,
            version,
            timeout_s,
            request_id,
            key,
            parameters or {},
            headers or {},
            no_store,
            tenant,
        )
        return await self._tasks.do(self._core.infer(call))

    async def stream(
        self,
        model: str,
        inputs: Mapping[str, object] | None = None,
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        timeout_s: float | None = None,
        request_id: str = "",
        key: str | bytes = "",
        parameters: Mapping[str, str | int | bool] | None = None,
        headers: Mapping[str, str] | None = None,
        **values: object,
    ) -> AsyncIterator[InferResult]:
        """Every answer to one request, as Client.stream: `async for answer in client.stream(..)`.
        Who leaves the loop early cancels the rest with `aclose()`, or when the iterator goes.
        """
        call = Call(
            model,
            merged(inputs, values),
            outputs,
            version,
            timeout_s,
            request_id,
            key,
            parameters or {},
            headers or {},
        )
        stream = await self._tasks.do(self._core.stream(call))
        try:
            while (result := await self._tasks.do(self._core.following(stream))) is not None:
                yield result
        finally:
            await stream.answers.aclose()

    def sequence(
        self, model: str, *, sequence_id: int | None = None, version: str = ""
    ) -> AsyncClientSequence:
        """As Client.sequence.

        async with client.sequence("acc") as sequence:
            await sequence.infer(x=[1])
        """
        return AsyncClientSequence(self._tasks, Progress(self._core, sequence_id), model, version)

    async def signature(self, model: str, version: str = "") -> Signature:
        """What the model takes and gives, as the server says now; text is `bytes` there."""
        return (await self._tasks.do(self._core.describe(model, version))).signature


class AsyncClientSequence:
    """See AsyncClient.sequence."""

    def __init__(self, tasks: Tasks, progress: Progress, model: str, version: str) -> None:
        self._tasks, self._progress = tasks, progress
        self._model, self._version = model, version

    @property
    def id(self) -> int:
        return self._progress.id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def infer(
        self,
        inputs: Mapping[str, object] | None = None,
        *,
        last: bool = False,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
        **values: object,
    ) -> InferResult:
        """The next request, with `last` the final one. As Client.infer."""
        call = Call(self._model, merged(inputs, values), outputs, self._version, timeout_s)
        return await self._tasks.do(self._progress.sent(call, last=last))

    async def close(self) -> None:
        """As ClientSequence.close."""
        await self._tasks.do(self._progress.ended())
