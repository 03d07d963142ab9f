"""A closed-loop gRPC load generator in an own process, so that its CPU is not the server's."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

INFER = "/inference.GRPCInferenceService/ModelInfer"
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

Inputs = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class LoadResult:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


class Load:
    """The parent's end: one child, started once, which sends whatever `run` gives it."""

    def __init__(self, grpc: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, __file__, grpc], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def run(
        self,
        requests: Sequence[bytes],
        in_flight: int,
        seconds: float = math.inf,
        count: int | None = None,
    ) -> LoadResult:
        """Sends serialised requests in turn, always `in_flight` at once, for `seconds` or until
        there were `count`, whichever is first.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        order = {
            "sizes": [len(request) for request in requests],
            "how": {"in_flight": in_flight, "seconds": seconds, "count": count},
        }
        self._child.stdin.write(json.dumps(order).encode() + b"\n" + b"".join(requests))
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise SystemExit("error: the load generator ended; its reason is above")
        return LoadResult(**json.loads(answer))


def serialise(model: str, inputs: Inputs) -> bytes:
    """A ModelInferRequest; `inputs` have the batch axis, strings are object arrays of bytes."""
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        dtype = np_to_triton_dtype(array.dtype)
        request.inputs.add(name=name, datatype=dtype, shape=array.shape)
        raw = serialize_byte_tensor(array).item() if dtype == "BYTES" else array.tobytes()
        request.raw_input_contents.append(raw)
    return bytes(request.SerializeToString())


def read_order(stream: BinaryIO) -> tuple[list[bytes], dict[str, Any]] | None:
    line = stream.readline()
    if not line:
        return None
    order = json.loads(line)
    requests = [stream.read(size) for size in order["sizes"]]
    return requests, order["how"]


def send(
    grpc_address: str,
    requests: Sequence[bytes],
    in_flight: int,
    seconds: float,
    count: int | None,
) -> LoadResult:
    """Bytes go out as they are and answers are not parsed: the client must stay light."""
    import grpc

    times: list[float] = []
    failures: list[grpc.RpcError] = []
    turn = itertools.islice(itertools.cycle(requests), count)
    begin = time.perf_counter()
    with grpc.insecure_channel(grpc_address, options=UNLIMITED) as channel:
        infer = channel.unary_unary(INFER)

        def sender() -> None:
            now = time.perf_counter()
            for request in turn:
                try:
                    infer(request)
                except grpc.RpcError as error:
                    failures.append(error)
                now, last = time.perf_counter(), now
                times.append(now - last)
                if now - begin >= seconds or failures:
                    break

        threads = [threading.Thread(target=sender) for _ in range(in_flight)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise SystemExit(f"error: a request failed: {failures[0].details()}")
    p50, p99 = (1000 * float(q) for q in np.quantile(times, (0.5, 0.99)))
    return LoadResult(len(times), time.perf_counter() - begin, p50, p99)


def main() -> None:
    while order := read_order(sys.stdin.buffer):
        requests, how = order
        print(json.dumps(asdict(send(sys.argv[1], requests, **how))), flush=True)


if __name__ == "__main__":
    main()
