"""What Triton exports of a request, as a tree."""

from __future__ import annotations

from typing import Any

import pytest

from mmctl.trace.spans import Compute, Span, read_traces

TRACE = "b54b473cc5e0a145ff46d908fb0cd76a"


def exported(name: str, span: str, parent: str, start: int, end: int, **more: Any) -> Any:
    return {
        "traceId": TRACE.upper(), "name": name, "spanId": span, "parentSpanId": parent,
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(end), **more,
    }  # fmt: skip


def export(*spans: Any) -> Any:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def events(**times: int) -> list[dict[str, str]]:
    return [{"name": name, "timeUnixNano": str(time)} for name, time in times.items()]


VERSION = [{"key": "triton.model_version", "value": {"intValue": "3"}}]
COMPUTE = exported(
    "compute", "3", "2", 2, 8, events=events(COMPUTE_INPUT_END=3, COMPUTE_OUTPUT_START=7)
)
MODEL = exported("tag", "2", "1", 1, 9, attributes=VERSION)
REQUEST = exported("InferRequest", "1", "0", 0, 10)
TREE = Span("", 0, 10, (Span("tag", 1, 9, (), Compute(2, 3, 7, 8), "3"),))


def test_a_request_is_a_tree_whose_models_know_when_they_computed() -> None:
    assert read_traces([export(COMPUTE, MODEL, REQUEST)]) == {TRACE: TREE}


def test_a_request_may_be_spread_over_several_exports() -> None:
    assert read_traces([export(COMPUTE), export(MODEL), export(REQUEST)]) == {TRACE: TREE}


def test_a_request_that_has_not_ended_is_left_out() -> None:
    assert read_traces([export(COMPUTE, MODEL)]) == {}


def test_a_trace_that_began_elsewhere_is_read_from_triton_on() -> None:
    """`parentSpanId` of the root is that of the caller's span."""
    assert set(read_traces([export({**REQUEST, "parentSpanId": "b7ad6b7169203331"})])) == {TRACE}


@pytest.mark.parametrize("wrong", [{}, {"resourceSpans": None}, {"resourceSpans": [{}]}, []])
def test_what_is_no_export_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="not an OTLP export"):
        read_traces([wrong])
