"""A gRPC server that speaks Triton's protocol: real wire, no Triton. It answers with its inputs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.grpc import (  # noqa: TID253 - this module is the other end of the wire
    model_config_pb2,
    service_pb2,
    service_pb2_grpc,
)

SEVERAL = {"text": ("TYPE_STRING", [1]), "x": ("TYPE_FP32", [4])}


def config(
    name: str = "echo",
    inputs: Mapping[str, tuple[str, list[int]]] | None = None,
    max_batch: int = 4,
) -> Any:
    """A model that gives back each input as NAME_out."""
    message = model_config_pb2.ModelConfig(name=name, max_batch_size=max_batch)
    for tensor, (word, dims) in (inputs or SEVERAL).items():
        kind = model_config_pb2.DataType.Value(word)
        message.input.add(name=tensor, data_type=kind, dims=dims)
        message.output.add(name=f"{tensor}_out", data_type=kind, dims=dims)
    return message


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """`failure` is what every inference fails with; `asked` and `metadata` are what came. Without
    `loaded` it has no statistics.
    """

    def __init__(self, *configs: Any) -> None:
        self.configs = {message.name: message for message in configs or (config(),)}
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.stream_error = ""
        self.index_closed = False
        self.loaded: list[str] | None = None
        self.states: list[tuple[str, str, str, str]] = [
            (name, "1", "READY", "") for name in self.configs
        ]
        self.versions = ["1"]
        self.asked: list[Any] = []
        self.metadata: dict[str, str] = {}
        self.go_on = threading.Event()
        self.go_on.set()
        self.address = ""

    def ServerReady(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=True)

    def ServerMetadata(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    def ModelConfig(self, request: Any, context: Any) -> Any:
        if request.name not in self.configs or request.version not in ("", "1"):
            text = f"Request for unknown model: '{request.name}' is not found"
            context.abort(grpc.StatusCode.NOT_FOUND, text)
        return service_pb2.ModelConfigResponse(config=self.configs[request.name])

    def ModelMetadata(self, request: Any, _context: Any) -> Any:
        return service_pb2.ModelMetadataResponse(name=request.name, versions=self.versions)

    def RepositoryIndex(self, _request: Any, context: Any) -> Any:
        if self.index_closed:
            context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted")
        index = service_pb2.RepositoryIndexResponse()
        for name, version, state, reason in self.states:
            index.models.add(name=name, version=version, state=state, reason=reason)
        return index

    def ModelStatistics(self, _request: Any, context: Any) -> Any:
        if self.loaded is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted")
        answer = service_pb2.ModelStatisticsResponse()
        for name in self.loaded:
            answer.model_stats.add(name=name, version="1")
        return answer

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:
        """Two answers for each request."""
        for request in requests:
            answer = self.ModelInfer(request, context)
            yield service_pb2.ModelStreamInferResponse(infer_response=answer)
            yield service_pb2.ModelStreamInferResponse(
                infer_response=None if self.stream_error else answer,
                error_message=self.stream_error,
            )

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        self.metadata = dict(context.invocation_metadata())
        self.go_on.wait(10)
        if self.failure is not None:
            context.abort(*self.failure)
        answer = service_pb2.ModelInferResponse(
            model_name=request.model_name,
            model_version="1",
            raw_output_contents=request.raw_input_contents,
        )
        for tensor in request.inputs:
            answer.outputs.add(
                name=f"{tensor.name}_out", datatype=tensor.datatype, shape=tensor.shape
            )
        return answer


@contextmanager
def running(fake: FakeTriton) -> Iterator[FakeTriton]:
    """The fake behind a port of its own; `fake.address` says which."""
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(4), options=unlimited)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        fake.go_on.set()
        server.stop(grace=None).wait()
