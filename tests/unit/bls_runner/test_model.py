"""The `model.py` around the runner: requests of Triton in, responses out, in both forms."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bls_run
import numpy as np
import pytest
from bls_calls import KINDS
from bls_graphs import PATIENCE_S, data, flat, floats, node, tensor, texts
from fake_metrics import FakeMetrics

UNAVAILABLE, INTERNAL, NOT_FOUND = 14, 13, 5


class TritonTensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def as_numpy(self) -> Any:
        return self._array


class TritonError:
    UNAVAILABLE, INTERNAL, NOT_FOUND = UNAVAILABLE, INTERNAL, NOT_FOUND

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class ModelError(Exception):
    """What a call of a model that is not there raises."""


class Response:
    def __init__(self, output_tensors: Any = (), error: Any = None) -> None:
        self._outputs, self._error = list(output_tensors), error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> Any:
        return self._error

    def output_tensors(self) -> list[Any]:
        return self._outputs

    def shown(self) -> dict[str, list[Any]]:
        return {tensor.name(): flat(tensor.as_numpy()) for tensor in self._outputs}


class Trace:
    """Of a request that is traced when it has a context."""

    def __init__(self, context: str | None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        return self._context


TRACED = '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


class Request:
    """A request from a client."""

    def __init__(
        self, wanted: list[str], parameters: str = "", trace: Any = None, **inputs: Any
    ) -> None:
        self._wanted, self._parameters = wanted, parameters
        self._trace = trace or Trace(None)
        self._inputs = [TritonTensor(name, array) for name, array in inputs.items()]
        self.sent: list[tuple[Response, int]] = []
        self._came = threading.Event()

    def inputs(self) -> list[Any]:
        return self._inputs

    def requested_output_names(self) -> list[str]:
        return self._wanted

    def parameters(self) -> str:
        return self._parameters

    def trace(self) -> Any:
        return self._trace

    def get_response_sender(self) -> Any:
        return SimpleNamespace(send=self._send)

    def _send(self, response: Response, flags: int) -> None:
        self.sent.append((response, flags))
        self._came.set()

    def response(self) -> Response:
        assert self._came.wait(PATIENCE_S)
        [(response, flags)] = self.sent
        assert flags == 1
        return response


Models = dict[str, Callable[..., Any]]
Serve = Callable[..., Any]


@pytest.fixture
def calls() -> list[dict[str, Any]]:
    """What models were asked for."""
    return []


@pytest.fixture
def metrics() -> FakeMetrics:
    return FakeMetrics()


@pytest.fixture
def model(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    calls: list[dict[str, Any]],
    metrics: FakeMetrics,
) -> Iterator[Serve]:
    """A pipeline as Triton loads it; the functions stand for the models that it calls."""

    def served(plan: dict[str, Any], **models: Callable[[Any], Any]) -> Any:
        class InferenceRequest:
            def __init__(self, **asked: Any) -> None:
                calls.append(asked)
                self._model, self._inputs = asked["model_name"], asked["inputs"]

            def exec(self) -> Response:
                given = {t.name(): t.as_numpy() for t in self._inputs}
                answer = models[self._model](given["x"])
                if isinstance(answer, Response):
                    return answer
                return Response([TritonTensor("y", answer)])

        backend = SimpleNamespace(
            Tensor=TritonTensor, InferenceRequest=InferenceRequest, InferenceResponse=Response,
            TritonError=TritonError, TritonModelException=ModelError,
            TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
            MetricFamily=metrics.MetricFamily, TRITONSERVER_MEMORY_CPU="the CPU",
            PreferredMemory=lambda kind: f"memory of {kind}",
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
        source = Path(bls_run.__file__).with_name("bls_model.py")
        (tmp_path / "model.py").write_bytes(source.read_bytes())
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        spec = spec_from_file_location("served_model", tmp_path / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        face = module.TritonPythonModel()
        face.initialize({"model_name": "demo"})
        faces.append(face)
        return face

    faces: list[Any] = []
    yield served
    for face in faces:
        face.finalize()


def double(x: Any) -> Any:
    return 2 * x


def double_after(gate: threading.Event) -> Callable[[Any], Any]:
    def slow(x: Any) -> Any:
        assert gate.wait(PATIENCE_S)
        return double(x)

    return slow


PLAN = data([node("a", {"x": "x"}), node("b", {"x": "a.y"})], {"y": "b.y"})


def test_a_request_that_cannot_be_read_is_answered_with_an_error(model: Serve) -> None:
    served, request = model(PLAN, a=double, b=double), Request(["y"], other=floats(1))
    good = Request(["y"], x=floats(1))
    served.execute([request, good])
    assert request.response().error().message() == "KeyError: 'x'"
    assert good.response().shown() == {"y": [4]}


def test_a_request_is_answered_through_its_sender(model: Serve) -> None:
    served, request = model(PLAN, a=double, b=double), Request(["y"], x=floats(1, 2))
    assert served.execute([request]) is None
    assert request.response().shown() == {"y": [4, 8]}


def test_execute_does_not_wait_for_the_answers(model: Serve) -> None:
    gate = threading.Event()
    requests = [Request(["y"], x=floats(number)) for number in (1, 2)]
    served = model(PLAN, a=double_after(gate), b=double)
    for request in requests:
        served.execute([request])
    assert [request.sent for request in requests] == [[], []]
    gate.set()
    assert [request.response().shown() for request in requests] == [{"y": [4]}, {"y": [8]}]


def test_a_server_without_late_answers_gets_them_from_execute(model: Serve) -> None:
    served = model({**PLAN, "answers_late": False}, a=double, b=double)
    requests = [Request(["y"], x=floats(number)) for number in (1, 2, 3)]
    responses = asyncio.run(served.execute(requests))
    assert [response.shown() for response in responses] == [{"y": [4]}, {"y": [8]}, {"y": [12]}]
    assert [request.sent for request in requests] == [[], [], []]


def test_execute_waits_for_a_request_that_is_traced(model: Serve, calls: Any) -> None:
    """Triton drops its trace when `execute` returns, and dies of a call that takes it along."""
    gate, passed = threading.Event(), threading.Event()
    served = model(PLAN, a=double_after(gate), b=double)
    traced, untraced = Request(["y"], x=floats(1), trace=Trace(TRACED)), Request(["y"], x=floats(2))

    def execute() -> None:
        served.execute([traced, untraced])
        passed.set()

    threading.Thread(target=execute, daemon=True).start()
    assert not passed.wait(0.1)
    gate.set()
    assert passed.wait(PATIENCE_S)
    assert traced.sent, "only then it returns"
    assert untraced.response().shown() == {"y": [8]}
    assert sorted("trace" in call for call in calls) == [False, False, True, True]


def test_a_trace_that_is_held_no_longer_does_not_go_along(
    model: Serve, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    served = model(PLAN, a=double_after(gate), b=double)
    holding = type(served).execute.__globals__
    monkeypatch.setitem(holding, "TRACE_HOLD_S", 0.01)
    request = Request(["y"], x=floats(1), trace=Trace(TRACED))
    served.execute([request])
    gate.set()
    assert request.response().shown() == {"y": [4]}
    assert ["trace" in call for call in calls] == [True, False]


def test_where_a_model_cannot_know_whether_it_is_traced_no_trace_goes_along(
    model: Serve, calls: Any
) -> None:
    request = Request(["y"], x=floats(1), trace=object())
    model(PLAN, a=double, b=double).execute([request])
    request.response()
    assert ["trace" in call for call in calls] == [False, False]


def test_a_call_takes_the_trace_and_the_parameters_along(model: Serve, calls: Any) -> None:
    plan, trace = {**PLAN, "pins": {"a": 7}}, Trace(TRACED)
    request = Request(["y"], parameters='{"id": 3}', x=floats(1), trace=trace)
    model(plan, a=double, b=double).execute([request])
    request.response()
    first, second = calls
    assert (first["model_name"], first["model_version"], first["trace"]) == ("a", 7, trace)
    assert first["parameters"] == second["parameters"] == {"id": 3}
    assert first["requested_output_names"] == ["y"]


def test_parameters_that_a_call_cannot_carry_stay_behind(model: Serve, calls: Any) -> None:
    """Triton takes fractions from clients, and none from Python models."""
    sent = '{"share": 0.5, "list": [1], "id": 3, "name": "n", "flag": true}'
    request = Request(["y"], parameters=sent, x=floats(1))
    model(PLAN, a=double, b=double).execute([request])
    assert request.response().shown() == {"y": [4]}
    assert calls[0]["parameters"] == {"id": 3, "name": "n", "flag": True}


def test_answers_are_asked_for_where_numpy_can_read_them(model: Serve, calls: Any) -> None:
    """A model on a GPU would leave them there."""
    request = Request(["y"], x=floats(1))
    model(PLAN, a=double, b=double).execute([request])
    request.response()
    assert [call["preferred_memory"] for call in calls] == ["memory of the CPU"] * 2


@pytest.mark.parametrize(
    ("problem", "message", "code"),
    [
        pytest.param(Response(error=TritonError("no such thing", NOT_FOUND)),
                     "node `a`: no such thing", NOT_FOUND, id="an error keeps its code"),
        pytest.param(Response(error=TritonError("full", UNAVAILABLE)),
                     "node `a`: full", UNAVAILABLE, id="unavailable"),
        pytest.param(Response(error=TritonError("Stub process 'a' is not healthy.")),
                     "node `a`: Stub process 'a' is not healthy.", UNAVAILABLE, id="a dead stub"),
        pytest.param(Response([TritonTensor("z", floats(1))]),
                     "node `a`: it gave no output `y`", INTERNAL, id="a wrong answer"),
    ],
)  # fmt: skip
def test_an_error_of_a_callee_names_the_node(
    model: Serve, problem: Response, message: str, code: int
) -> None:
    request = Request(["y"], x=floats(1))
    model(PLAN, a=lambda x: problem, b=double).execute([request])
    error = request.response().error()
    assert (error.message(), error.code()) == (message, code)


def test_a_model_that_is_not_there_is_unavailable(model: Serve) -> None:
    def gone(x: Any) -> Any:
        raise ModelError("Failed for execute the inference request. Model 'a' is not ready.")

    request = Request(["y"], x=floats(1))
    model(PLAN, a=gone, b=double).execute([request])
    error = request.response().error()
    assert (error.message(), error.code()) == ("node `a`: Model 'a' is not ready.", UNAVAILABLE)


def test_a_pipeline_without_batch_axis_takes_and_gives_one_row(model: Serve) -> None:
    nodes = [node("a", {"x": "x"}, max_batch=0, outputs=[tensor("y", dims=[3])])]
    plan = data(nodes, {"y": "a.y"}, batched=False, inputs=[tensor("x", dims=[3])])
    request = Request(["y"], x=np.ones(3, np.float32))
    model(plan, a=double).execute([request])
    [answer] = request.response().output_tensors()
    assert answer.as_numpy().tolist() == [2, 2, 2]


def test_provenance_leaves_as_text(model: Serve) -> None:
    request = Request(["y", "provenance"], x=floats(1))
    model({**PLAN, "provenance": True}, a=double, b=double).execute([request])
    [row] = request.response().shown()["provenance"]
    assert [entry["outcome"] for entry in json.loads(row).values()] == ["ran", "ran"]


def test_text_goes_in_and_out(model: Serve) -> None:
    word = tensor("y", "string")
    plan = data(
        [node("a", {"x": "x"}, outputs=[word])], {"y": "a.y"}, inputs=[tensor("x", "string")]
    )
    request = Request(["y"], x=texts(b"a\x00"))
    model(plan, a=lambda x: x + b"!").execute([request])
    assert request.response().shown() == {"y": [b"a\x00!"]}


KEPT = data([node("a", {"x": "x"}, cache_s=60)], {"y": "a.y"}, digests={"a": "1"}, cache_bytes=9999)


def test_parameters_that_calls_take_along_are_part_of_what_is_asked(
    model: Serve, calls: Any
) -> None:
    served = model(KEPT, a=double)
    for parameters in ('{"scale": 2, "q": 1.5}', '{"scale": 3}', "", '{"q": 7.5, "scale": 2}'):
        request = Request(["y"], parameters, x=floats(1))
        served.execute([request])
        assert request.response().shown() == {"y": [2]}
    assert [call.get("parameters") for call in calls] == [{"scale": 2}, {"scale": 3}, None]


def test_triton_is_told_what_it_does_not_count_itself(model: Serve, metrics: FakeMetrics) -> None:
    def only_small(x: Any) -> Any:
        return Response(error=TritonError("too large")) if x.max() > 9 else 2 * x

    nodes = [
        node("a", {"x": "x"}, cache_s=60), node("b", {"x": "a.y"}, on_error=7),
        node("c", {"x": "x"}, after=["b"]),
    ]  # fmt: skip
    plan = data(nodes, {"y": "b.y", "z": "c.y"}, digests={"a": "1"}, cache_bytes=9999)
    served = model(plan, a=double, b=only_small, c=only_small)
    assert metrics.models == {"demo"}
    assert {*metrics.shown} == {
        *(("mmctl_request_failure", kind) for kind in KINDS),
        ("mmctl_node_fallback", "b"), ("mmctl_node_cache_hits", "a"),
        ("mmctl_node_cache_misses", "a"),
    }  # fmt: skip
    assert set(metrics.shown.values()) == {0}, "what is not there yet has no rate"
    for x in (1, 1, 5, 50):
        request = Request(["y"] if x == 5 else ["y", "z"], x=floats(x))
        served.execute([request])
        assert request.response().has_error() is (x == 50)
    served.finalize()
    assert {key: count for key, count in metrics.shown.items() if count} == {
        ("mmctl_request_failure", "error"): 1, ("mmctl_node_fallback", "b"): 2,
        ("mmctl_node_cache_hits", "a"): 1, ("mmctl_node_cache_misses", "a"): 3,
    }  # fmt: skip
    assert len(metrics.tellers) == 1, "two threads that tell at once kill Triton"
    assert threading.get_ident() not in metrics.tellers


def test_a_server_without_metrics_of_models_goes_without(
    model: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FakeMetrics, "_metric", refuse)
    served, request = model(PLAN, a=double, b=double), Request(["y"], x=floats(1))
    served.execute([request])
    assert request.response().shown() == {"y": [4]}
    served.finalize()
    assert "metrics are disabled" in capsys.readouterr().err


def refuse(*_: Any) -> Any:
    raise RuntimeError("metrics are disabled")
