"""The client: user values in, arrays out, over any transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, Self

from mmctl.client.canary import Canaries
from mmctl.client.requests import readable, request_for
from mmctl.client.status import NotServedError
from mmctl.client.transport import Catalog, GrpcTransport, Transport
from mmctl.errors import InferenceError, InputError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Signature


class Server(Transport, Catalog, Protocol):
    """What a client needs of a server."""

    def close(self) -> None: ...


class Client:
    """Calls the models of one Triton. Threads may share it.

        with Client("127.0.0.1:8001") as client:
            answer = client.infer("tag", {"text": ["good", "bad"]})
            print(answer.outputs["label"])

    `headers` go with every call. `server` stands in for the Triton at `url`: tests pass a fake.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        server: Server | None = None,
    ) -> None:
        self._server = GrpcTransport(url, headers) if server is None else server
        self._signatures: dict[tuple[str, str], Signature] = {}
        self._canaries = Canaries()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()

    def infer(
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
        """One request. Values are arrays, scalars, text, bytes or nested lists of these.

        What is safe is cast, what would lose is refused, a missing batch axis is added. Texts of
        the answer are str, or bytes where they are not UTF-8; arrays have Triton's shapes.
        While a canary of the model stands, its candidate answers for a share of the keys, and is
        the `model` of the answer: `key`, else the request's id, else its inputs. A `version` turns
        that off.
        Raises InputError for values that do not fit, InferenceError with Triton's text, WorldError
        when no answer comes (within `timeout_s`).
        """

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

        request = self._checked(model, version, make)
        try:
            return readable(self._send(request, key, timeout_s))
        except InferenceError:
            self._signatures.pop((model, version), None)  # perhaps it was reloaded: ask again
            raise

    def signature(self, model: str, version: str = "") -> Signature:
        """What the model takes and gives, as the server says now; text is `bytes` there."""
        signature = self._server.signature(model, version)
        self._signatures[model, version] = signature
        return signature

    def _send(
        self, request: InferRequest, key: str | bytes, timeout_s: float | None
    ) -> InferResponse:
        """To the candidate when it is one of its share. Where that is gone the live one answers."""
        if self._canaries.asks(request):
            self._canaries.learn(request.model, self._server.share(request.model))
        if (candidate := self._canaries.candidate_for(request, key)) is not None:
            try:
                return self._server.infer(candidate, timeout_s)
            except NotServedError:
                self._canaries.learn(request.model, 0.0)
        return self._server.infer(request, timeout_s)

    def _checked(
        self, model: str, version: str, make: Callable[[Signature], InferRequest]
    ) -> InferRequest:
        """Before it says no, it asks again: the model may have been reloaded with other tensors."""
        if (known := self._signatures.get((model, version))) is not None:
            with suppress(InputError):
                return make(known)
        return make(self.signature(model, version))
