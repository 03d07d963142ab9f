"""The client: user values in, arrays out, over any transport."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from mmctl.client.core import Call, Core, merged
from mmctl.client.performers import Threads
from mmctl.client.replicas import open_server
from mmctl.client.retries import RETRIES, Retries
from mmctl.client.sequences import Progress
from mmctl.client.tls import Tls
from mmctl.client.transport import Server
from mmctl.inference import InferResult
from mmctl.tensors import Signature

if TYPE_CHECKING:
    from mmctl.cache.cache import Cache


class Client:
    """Calls the models of a Triton, or of several that serve the same. Threads may share it.

        with Client("127.0.0.1:8001") as client:
            answer = client.infer("tag", text=["good", "bad"])
            print(answer.outputs["label"])

    `url` is `host:port` or `grpc://host:port`, `http://host:port`, or with `tls` `grpcs://` and
    `https://`; of several, those that are gone are passed over. `headers` go with every call.
    `retries` says how often a server that is not there is asked again. `cache` may answer in place
    of a model: any number of clients may share one. `server` stands in for what is at `url`: tests
    pass a fake.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        retries: Retries = RETRIES,
        cache: Cache | None = None,
        server: Server | None = None,
    ) -> None:
        self._server = open_server(url, headers, tls, retries) if server is None else server
        self._core = Core(cache, headers=headers)
        self._threads = Threads(self._server, cache)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.close()
        self._server.close()

    def infer(
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
        """One request: `inputs` by name, or the `values` of inputs whose names Python can write.

        Values are arrays, scalars, text, bytes or nested lists of these. What is safe is cast, what
        would lose is refused, a missing batch axis is added. More rows than the model takes are
        sent as several requests. Texts of the answer are str, or bytes where they are not UTF-8;
        arrays have Triton's shapes.
        While a canary of the model stands, its candidate answers for a share of the keys, and is
        the `model` of the answer: `key`, else the request's id, else its inputs. A `version` turns
        that off.
        With a cache, `no_store` asks the model and keeps nothing, and the answer may be one that
        `tenant` (else the cache's own) has had before.
        Raises InputError for values that do not fit, InferenceError with Triton's text, WorldError
        when no answer comes (within `timeout_s`, of which the server is told).
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
            no_store,
            tenant,
        )
        return self._threads.do(self._core.infer(call))

    def stream(
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
    ) -> Iterator[InferResult]:
        """Every answer to one request, as it comes: what a decoupled model gives. `timeout_s` is
        for all of them. Leaving the loop early cancels the rest. Raises like `infer`, also after
        some answers.
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
        stream = self._threads.do(self._core.stream(call))
        try:
            while (result := self._threads.do(self._core.following(stream))) is not None:
                yield result
        finally:
            stream.answers.close()

    def sequence(
        self, model: str, *, sequence_id: int | None = None, version: str = ""
    ) -> ClientSequence:
        """Requests to a stateful model that belong together, with an id of their own.

            with client.sequence("acc") as sequence:
                sequence.infer(x=[1])
                sequence.infer(x=[2], last=True)

        Threads must not share a sequence.
        """
        return ClientSequence(self._threads, Progress(self._core, sequence_id), model, version)

    def signature(self, model: str, version: str = "") -> Signature:
        """What the model takes and gives, as the server says now; text is `bytes` there."""
        return self._threads.do(self._core.describe(model, version)).signature


class ClientSequence:
    """See Client.sequence."""

    def __init__(self, threads: Threads, progress: Progress, model: str, version: str) -> None:
        self._threads, self._progress = threads, progress
        self._model, self._version = model, version

    @property
    def id(self) -> int:
        return self._progress.id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def infer(
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
        return self._threads.do(self._progress.sent(call, last=last))

    def close(self) -> None:
        """Ends it at the server, where no request was the `last`: the latest one is sent once more
        as that.
        """
        self._threads.do(self._progress.ended())
