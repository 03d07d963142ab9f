"""Receiving traces where Triton sends them."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from mmctl.errors import WorldError
from mmctl.loadtest.collect import Collector, collecting, new_trace


@pytest.fixture
def address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def export(trace: str) -> Any:
    span = {
        "traceId": trace, "name": "InferRequest", "spanId": "1", "parentSpanId": "9",
        "startTimeUnixNano": "5", "endTimeUnixNano": "8",
    }  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def post(address: str, body: bytes) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}/v1/traces", body, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_request_is_found_by_its_trace(address: str) -> None:
    ours, header = new_trace()
    other, _ = new_trace()
    assert header["traceparent"].split("-")[1] == ours
    with collecting(address) as collector:
        for trace in (other, ours):
            assert post(address, json.dumps(export(trace)).encode()) == 200
        assert list(collector.wait_for([ours], 5)) == [ours]


def test_what_does_not_come_is_not_waited_for_for_ever(address: str) -> None:
    with collecting(address) as collector:
        assert collector.wait_for(["0" * 32], 0.1) == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"resourceSpans": 3}', b"\xff", b"[" * 9999])
def test_what_is_no_export_is_refused_and_the_next_one_is_taken(address: str, body: bytes) -> None:
    ours, _ = new_trace()
    with collecting(address) as collector:
        assert post(address, body) == 400
        assert post(address, json.dumps(export(ours)).encode()) == 200
        assert list(collector.wait_for([ours], 5)) == [ours]


def test_an_address_that_is_taken_is_said_to_be(address: str) -> None:
    taken = pytest.raises(WorldError, match="nothing can listen there")
    with collecting(address), taken, collecting(address):
        pass


def test_exports_are_passed_on(address: str) -> None:
    ours, _ = new_trace()
    with collecting(address) as behind:
        front = Collector(f"http://{address}/v1/traces")
        front.take(json.dumps(export(ours)).encode())
        assert list(behind.wait_for([ours], 5)) == [ours]
    front.take(json.dumps(export(ours)).encode())
    assert front.not_forwarded == 1, "nobody is there any more, and nothing is lost here"
    assert list(front.traces([ours])) == [ours]
