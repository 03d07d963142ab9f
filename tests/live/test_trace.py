"""Traces of a real Triton: through pipelines of both forms, and what they tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pipelines import signature, source
from repositories import write_pipelines
from servers import Serve
from sleepers import write_sleeper

from mmctl.client.transport import GrpcTransport
from mmctl.inference import InferRequest
from mmctl.loadtest.collect import Collector, collecting, new_trace
from mmctl.loadtest.tracing import Traced, trace_requests
from mmctl.server.process import EmbeddedTriton
from mmctl.trace.critical_path import Change, critical_path, length_with
from mmctl.trace.summary import summarise

pytestmark = [pytest.mark.live, pytest.mark.alone]

SLEEPS = {"short": 0.02, "long": 0.08, "last": 0.04}
NODES = """
nodes:
  short: {model: short, inputs: {x: x}MORE}
  long: {model: long, inputs: {x: x}}
  both: {step: add, inputs: {a: short.y, b: long.y}, outputs: {x: fp32}}
  last: {model: last, inputs: {x: both.x}}
outputs: {y: last.y}
"""
STEPS = "def add(a, b):\n    return {'x': a + b}\n"
PLAIN = source(
    "pipeline: plain\ninputs: {x: fp32}" + NODES.replace("MORE", ""), name="plain", steps=STEPS
)
CAREFUL = source(
    "pipeline: careful\ninputs: {x: fp32}" + NODES.replace("MORE", ", timeout_ms: 5000"),
    name="careful",
    steps=STEPS,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for name, seconds in SLEEPS.items():
        write_sleeper(folder, name, seconds, instances=2)
    one = signature({"x": "fp32"}, {"y": "fp32"})
    write_pipelines(folder, [PLAIN, CAREFUL], dict.fromkeys(SLEEPS, one))
    return folder


@pytest.fixture(scope="module")
def triton(serve: Serve, repository: Path) -> EmbeddedTriton:
    return serve(repository)


@pytest.fixture
def collector(triton: EmbeddedTriton) -> Iterator[Collector]:
    with collecting(triton.info.otlp) as found:
        yield found


def request(model: str) -> InferRequest:
    return InferRequest(model, {"x": np.ones((1, 1), np.float32)})


def traced(
    triton: EmbeddedTriton, collector: Collector, repository: Path, model: str, count: int = 8
) -> Traced:
    with GrpcTransport(triton.grpc, triton.headers) as transport:
        return trace_requests(
            transport, collector, [request(model)], count, repository, lambda _: None
        )


def ms(times: Sequence[int]) -> list[float]:
    return [time / 1e6 for time in times]


@pytest.mark.parametrize("model", ["plain", "careful"])
def test_the_path_goes_through_the_longer_branch(
    triton: EmbeddedTriton, collector: Collector, repository: Path, model: str
) -> None:
    """Also where Python runs the pipeline: a model that does not know its callers' trace would be
    missing, and one that keeps it too long would have killed the server.
    """
    found = traced(triton, collector, repository, model)
    assert set(found.edges) == {model}
    summary = summarise(found.roots, found.edges, found.batches)
    rows = {row.path[-1]: row for row in summary.rows}
    assert rows["long"].on_path == 1
    assert rows["short"].on_path == 0
    assert rows["long"].compute >= 80
    assert rows["long"].critical_ms >= 80
    batches = {name: row.batch for name, row in rows.items() if name in (*SLEEPS, model)}
    assert batches == {**dict.fromkeys(SLEEPS, 1.0), model: None}
    for root in found.roots:
        path = critical_path(root, found.edges)
        assert sum(segment.ns for segment in path) == root.end - root.start


@pytest.mark.parametrize("model", ["plain", "careful"])
def test_what_if_is_as_arithmetic_says(
    triton: EmbeddedTriton, collector: Collector, repository: Path, model: str
) -> None:
    """Half of the long branch is 40 ms; of the short one, which is off the path, nothing. A tenth
    of the long one leaves the short one to be waited for: 80 - 20 ms are saved.
    """
    found = traced(triton, collector, repository, model)
    for root in found.roots:
        length = root.end - root.start
        halved, tenth, short = (
            (length - length_with(root, Change(factors={(model, name): factor}), found.edges)) / 1e6
            for name, factor in (("long", 0.5), ("long", 0.1), ("short", 0.5))
        )
        assert halved == pytest.approx(40, abs=8)
        assert tenth == pytest.approx(60, abs=12)
        assert short == 0


def test_traced_requests_side_by_side_and_beside_others_do_no_harm(
    triton: EmbeddedTriton, collector: Collector
) -> None:
    """A pipeline that Python runs keeps each traced request until it is answered: Triton dies of
    a call that outlives the trace it belongs to.
    """
    wanted = []

    def ask(number: int) -> None:
        trace, header = new_trace()
        sent = request("careful")
        with GrpcTransport(triton.grpc) as transport:
            if number % 2:
                wanted.append(trace)
                transport.infer(InferRequest(sent.model, sent.inputs, headers=header))
            else:
                transport.infer(sent)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(32)))
    found = collector.wait_for(wanted, 3)
    assert len(found) >= 12, "Triton leaves out a few of those that it should trace"
    for root in found.values():
        assert {span.model for span in root.walk()} >= {"careful", "short", "long", "last"}
