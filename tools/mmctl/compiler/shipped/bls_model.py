"""The `model.py` of a pipeline in the bls form: runs the graph in plan.json and keeps its policies.

`execute` hands each request to a `Run` and returns at once; answers leave through the response
sender, so that one instance serves many requests side by side. A call blocks a thread of the
runner's own pool, never more than `max_in_flight` for one node: a dead model fills its own slots
and no others. This file is all that knows of Triton.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_calls import KINDS, NodeError, error_of
    from mmctl.compiler.shipped.bls_plan import Node, Plan
    from mmctl.compiler.shipped.bls_run import Call, Runner
    from mmctl.compiler.shipped.bls_values import Arrays, Held, array_of
    from mmctl.compiler.shipped.model_counters import (
        CACHE_HITS,
        CACHE_MISSES,
        FAILURES,
        FALLBACKS,
        Teller,
    )  # fmt: skip
else:
    from bls_calls import KINDS, NodeError, error_of
    from bls_plan import Node, Plan
    from bls_run import Call, Runner
    from bls_values import Arrays, Held, array_of
    from model_counters import CACHE_HITS, CACHE_MISSES, FAILURES, FALLBACKS, Teller

TRY_LATER = ("unavailable", "unhealthy", "saturated")
"""Errors that a caller may try again: they leave as UNAVAILABLE."""
TRACE_HOLD_S = 30.0
"""How long `execute` waits for the answer to a traced request at most."""
CARRIED = (bool, int, str)
"""Types of parameters that a call can have; clients may send fractions too."""


class TritonPythonModel:
    """The face that Triton's Python backend asks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        data = json.loads((Path(__file__).parent / "plan.json").read_text(encoding="utf-8"))
        self.plan = Plan(data)
        self.runner = Runner(self.plan)
        self.answers_late = data["answers_late"]
        self.teller = Teller(self.runner.counters, args["model_name"], counted(self.plan))
        self.teller.start()

    def finalize(self) -> None:
        self.teller.stop()

    def execute(self, requests: list[Any]) -> Any:
        if not self.answers_late:
            return self._execute_together(requests)
        traces = []
        for request in requests:
            send = _sender(request)
            if _is_traced(request):
                traces.append(trace := HeldTrace(request, send))
                self._begin(request, trace.send, trace.get)
            else:
                self._begin(request, send)
        for trace in traces:
            trace.hold()
        return None

    async def _execute_together(self, requests: list[Any]) -> list[Any]:
        """Before 24.06 `execute` returns the answers: an instance serves one batch at a time."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        for request, future in zip(requests, futures, strict=True):
            self._begin(request, _setter(loop, future), request.trace)
        return list(await asyncio.gather(*futures))

    def _begin(
        self, request: Any, send: Callable[[Any], None], trace: Callable[[], Any] | None = None
    ) -> None:
        """Start a request; `send` takes its InferenceResponse, exactly once. Its calls take along
        what `trace` gives.
        """
        try:
            self._start(request, send, trace)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the request is answered
            send(self._response(error_of(problem), request))

    def _start(
        self, request: Any, send: Callable[[Any], None], trace: Callable[[], Any] | None
    ) -> None:
        plan = self.plan
        held = {tensor.name(): Held(tensor) for tensor in request.inputs()}
        batch = held[plan.inputs[0].name].shape[0] if plan.batched else 1
        inputs: Arrays = {
            t.name: held[t.name] if plan.batched else held[t.name].array()[None]
            for t in plan.inputs
        }
        passed = _passed_on(request)
        # The request is kept until its answer has left: its tensors lie in its shared memory.
        self.runner.start(
            inputs,
            batch,
            request.requested_output_names(),
            _caller(passed, trace),
            lambda outcome: send(self._response(outcome, request)),
            json.dumps(passed, sort_keys=True).encode() if plan.cache_bytes else b"",
        )

    def _response(self, outcome: Any, _request: Any) -> Any:
        import triton_python_backend_utils as pb_utils

        if isinstance(outcome, NodeError):
            self.runner.counters.add(FAILURES, outcome.kind)
            error = pb_utils.TritonError(str(outcome), _code(outcome, pb_utils))
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        tensors = [
            _tensor(name, value if self.plan.batched else array_of(value)[0])
            for name, value in outcome.items()
        ]
        return pb_utils.InferenceResponse(output_tensors=tensors)


def counted(plan: Plan) -> list[tuple[str, str]]:
    """What Triton shall know: families of counters, and what each counts."""
    nodes = plan.nodes.values()
    return [
        *((FAILURES, kind) for kind in KINDS),
        *((FALLBACKS, node.name) for node in nodes if node.absorbs),
        *((family, n.name) for n in nodes if n.is_cached for family in (CACHE_HITS, CACHE_MISSES)),
    ]


class HeldTrace:
    """The trace of a request that `execute` holds until its answer has left.

    Triton drops the trace when `execute` returns, and a call that still takes it along kills the
    server with SIGSEGV (seen in 2.51: every pipeline, within two requests). So a traced request
    makes its instance wait; what is not traced passes by untouched.
    """

    def __init__(self, request: Any, send: Callable[[Any], None]) -> None:
        self._trace: Any = request.trace()
        self._send = send
        self._answered = threading.Event()

    def get(self) -> Any:
        """For one more call; None when `execute` does not hold it any more."""
        return self._trace

    def send(self, response: Any) -> None:
        self._send(response)
        self._answered.set()

    def hold(self) -> None:
        self._answered.wait(TRACE_HOLD_S)
        self._trace = None


def _is_traced(request: Any) -> bool:
    """Before 24.09 a model cannot know: there no call takes a trace along."""
    context = getattr(request.trace(), "get_context", None)
    return context is not None and context() is not None


def _sender(request: Any) -> Callable[[Any], None]:
    import triton_python_backend_utils as pb_utils

    sender = request.get_response_sender()
    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    return lambda response: sender.send(response, flags=final)


def _setter(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> Callable[[Any], None]:
    def send(response: Any) -> None:
        loop.call_soon_threadsafe(future.set_result, response)

    return send


def _code(error: NodeError, pb_utils: Any) -> Any:
    if error.kind in TRY_LATER:
        return pb_utils.TritonError.UNAVAILABLE
    return pb_utils.TritonError.INTERNAL if error.code is None else error.code


def _tensor(name: str, value: Any) -> Any:
    """A Triton tensor; the very one that came when it has that name already."""
    import triton_python_backend_utils as pb_utils

    if isinstance(value, Held) and value.tensor.name() == name:
        return value.tensor
    return pb_utils.Tensor(name, np.ascontiguousarray(array_of(value)))


def _passed_on(request: Any) -> dict[str, Any]:
    """Parameters of a request that its calls have too."""
    parameters = json.loads(request.parameters() or "{}")
    return {key: value for key, value in parameters.items() if isinstance(value, CARRIED)}


def _caller(parameters: dict[str, Any], trace: Callable[[], Any] | None) -> Call:
    """How the nodes of a request call models: its trace and parameters go along.

    Answers come in the CPU's memory, which numpy can read, from whatever device.
    """
    import triton_python_backend_utils as pb_utils

    memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)
    passed: dict[str, Any] = {"preferred_memory": memory}
    if parameters:
        passed["parameters"] = parameters

    def call(node: Node, inputs: Arrays, timeout_us: int) -> Arrays:
        held = trace() if trace else None
        traced = {} if held is None else {"trace": held}
        inference = pb_utils.InferenceRequest(
            model_name=node.model,
            model_version=node.version,
            requested_output_names=node.wanted,
            inputs=[_tensor(name, value) for name, value in inputs.items()],
            timeout=timeout_us,
            **traced,
            **passed,
        )
        try:
            response = inference.exec()
        except pb_utils.TritonModelException as error:
            raise NodeError(_plain(str(error)), _kind(str(error), None)) from None
        if response.has_error():
            problem = response.error()
            message, code = problem.message(), problem.code()
            raise NodeError(_plain(message), _kind(message, code), code)
        return {tensor.name(): Held(tensor) for tensor in response.output_tensors()}

    return call


def _kind(message: str, code: Any) -> str:
    """What went wrong, as far as Triton's words tell it."""
    import triton_python_backend_utils as pb_utils

    if "is not healthy" in message:
        return "unhealthy"
    if code == pb_utils.TritonError.UNAVAILABLE or "is not ready" in message:
        return "unavailable"
    return "error"


def _plain(message: str) -> str:
    """Without what Triton puts before the reason."""
    return message.removeprefix("Failed for execute the inference request. ").strip()
