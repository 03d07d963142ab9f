"""Requests that are made once and sent often: what a load test needs of a client.

A message is made bytes before the load begins, and an answer is read only where it is to be
checked: what is left is gRPC itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmctl.client.messages import request_message, response_of
from mmctl.client.requests import readable
from mmctl.client.status import Failure, error_of
from mmctl.inference import InferRequest, InferResponse

_INFER = "/inference.GRPCInferenceService/ModelInfer"


class Prepared:
    """Requests to one Triton, over a channel of asyncio's gRPC. Make it inside the event loop."""

    def __init__(
        self,
        channel: Any,
        address: str,
        requests: Sequence[InferRequest],
        headers: Mapping[str, str],
    ) -> None:
        from tritonclient.grpc import service_pb2 as pb

        self._address = address
        self._answer = pb.ModelInferResponse
        self._names = [request.model for request in requests]
        self._bodies = [
            request_message(pb.ModelInferRequest, request).SerializeToString()
            for request in requests
        ]
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())
        self._call = channel.unary_unary(_INFER)

    async def send(self, number: int, timeout_s: float) -> bytes:
        """The answer to request `number` (of as many as there are, in turn), unread. Raises
        InferenceError with Triton's text, WorldError when none came in time.
        """
        import grpc

        index = number % len(self._bodies)
        try:
            answer = await self._call(
                self._bodies[index], timeout=timeout_s, metadata=self._metadata
            )
        except grpc.RpcError as error:
            where = f"model `{self._names[index]}`"
            code, details = error.code().name, error.details() or ""
            raise error_of(Failure(code, details, where, self._address, timeout_s)) from error
        return bytes(answer)

    def read(self, answer: bytes) -> InferResponse:
        return readable(response_of(self._answer.FromString(answer)))
