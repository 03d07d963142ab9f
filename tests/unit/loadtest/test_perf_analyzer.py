"""What perf_analyzer is given, and how its export is read. The program itself: tests/live."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmctl.client.tls import Tls
from mmctl.errors import InputError, WorldError
from mmctl.inference import InferRequest
from mmctl.loadtest.perf_analyzer import (
    MOST_REQUESTS,
    Program,
    Target,
    closed_loop,
    failure,
    find_program,
    input_data,
    intervals,
    offer,
    read_closed,
    read_open,
    refuse_unable,
)
from mmctl.loadtest.result import Measured
from mmctl.loadtest.schedule import Arrivals, ClosedLoop, OpenLoop, Phase
from mmctl.server.access import GRPC_HEADER
from mmctl.tensors import Array


def request(**inputs: Array) -> InferRequest:
    return InferRequest("m", inputs)


def texts(*values: str | bytes) -> Array:
    array = np.empty((1, len(values)), dtype=object)
    array[0, :] = values
    return array


def content(entry: dict[str, Any]) -> bytes:
    return base64.b64decode(entry["content"]["b64"])


def test_shapes_are_those_of_a_row_and_rows_are_entries_that_follow_each_other() -> None:
    """With the batch in it: `[2,4] is incompatible with the model's input shape of [4]`."""
    two = request(feat=np.arange(8, dtype=np.float32).reshape(2, 4))
    data, rows = input_data([two], batched=True)
    assert rows == 2
    assert [entry["feat"]["shape"] for entry in data["data"]] == [[4], [4]]
    assert content(data["data"][1]["feat"]) == struct.pack("<4f", 4, 5, 6, 7)


def test_without_a_batch_axis_the_shape_is_the_whole() -> None:
    data, rows = input_data([request(x=np.ones((2, 3), np.float16))], batched=False)
    assert rows == 1
    assert data["data"][0]["x"]["shape"] == [2, 3]
    assert len(content(data["data"][0]["x"])) == 12


def test_whole_numbers_and_texts_are_bytes_so_no_word_of_json_can_be_wrong() -> None:
    data, _ = input_data([request(text=texts('a "b"', b"\xff\0"))], batched=True)
    [entry] = data["data"]
    assert entry["text"]["shape"] == [2]
    assert content(entry["text"]) == b'\x05\0\0\0a "b"\x02\0\0\0\xff\0'
    json.dumps(data)


def test_samples_of_different_numbers_of_rows_are_refused() -> None:
    one, two = (request(x=np.ones((rows, 1), np.float32)) for rows in (1, 2))
    with pytest.raises(InputError, match="samples of 1, 2 rows"):
        input_data([one, two], batched=True)


def test_the_measurement_of_a_level_has_the_seconds_that_were_asked_for() -> None:
    words = closed_loop(8, 10)
    assert words[:4] == ["--concurrency-range", "8", "-p", "3333"]


def test_intervals_do_not_drift() -> None:
    due = [n / 3000 for n in range(1, 3001)]
    parts = [int(line) for line in intervals(due).splitlines()]
    assert sum(parts) == 1_000_000
    assert set(parts) <= {333, 334}


def export(requests: list[tuple[int, int | None]], ended_ms: int = 1000) -> str:
    """Sent and answered, in ms after the load began, as perf_analyzer writes it."""
    start = 1_796_000_000_000_000_000

    def ns(ms: int) -> int:
        return start + ms * 1_000_000

    told = [
        {
            "timestamp": ns(sent),
            "request_inputs": {"x": [1.0]},
            "response_timestamps": [] if answered is None else [ns(answered)],
        }
        for sent, answered in requests
    ]
    boundaries = [ns(0), ns(ended_ms // 2), ns(ended_ms)]
    return json.dumps({"experiments": [{"requests": told, "window_boundaries": boundaries}]})


def test_a_closed_loop_is_read_request_by_request() -> None:
    level = read_closed(export([(0, 20), (20, 60), (60, None)], 1000), callers=4)
    whole = level.recorder.whole
    assert (level.callers, level.seconds) == (4, 1.0)
    assert (whole.offered, whole.completed, whole.errors) == (3, 2, {"no answer": 1})
    assert whole.latency.quantile_ms(50) == pytest.approx(20, rel=0.002)
    assert whole.latency.max_ms == pytest.approx(40, rel=0.002)
    assert level.told()["throughput"] == 2


def test_an_open_loop_counts_from_when_requests_were_due() -> None:
    """The second left 100 ms late, and was answered 10 ms later: it has waited 110 ms."""
    level = read_open(export([(100, 110), (300, 310)], 1000), due=[0.1, 0.2], seconds=1)
    whole, lag = level.recorder.whole, level.recorder.lag
    assert whole.latency.max_ms == pytest.approx(110, rel=0.002)
    assert lag.max_ms == pytest.approx(100, rel=0.002)
    assert whole.latency.quantile_ms(50) == pytest.approx(10, rel=0.002)
    assert level.seconds == 1


def test_bytes_in_the_export_do_no_harm() -> None:
    text = export([(0, 20)]).replace("[1.0]", '["a\x01\ufffd"]')
    assert read_closed(text, 1).recorder.whole.completed == 1


@pytest.mark.parametrize("text", ["", "{}", '{"experiments": []}', '{"experiments": [{}]}', "[]"])
def test_an_export_of_another_form_is_told(text: str) -> None:
    with pytest.raises(WorldError, match="its export cannot be read"):
        read_closed(text, 1)


def test_what_it_cannot_do_is_refused_before_anything_is_sent() -> None:
    once = ClosedLoop("baseline", (1,), 1)
    refuse_unable(once, None, {GRPC_HEADER: "the embedded server's own key"})
    with pytest.raises(InputError, match="TLS or headers"):
        refuse_unable(once, None, {"authorization": "Bearer x"})
    with pytest.raises(InputError, match="TLS or headers"):
        refuse_unable(once, Tls(), {})
    days = OpenLoop("soak:300", (Phase(72 * 3600, 300, 300),))
    with pytest.raises(InputError, match=f"77760000 requests are due.*{MOST_REQUESTS}"):
        refuse_unable(days, None, {})


def test_without_the_program_the_error_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorldError, match="there is no `perf_analyzer`") as error:
        find_program(None)
    assert "mmctl runtime install" in str(error.value.hint)


def test_one_on_path_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = write_program(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(None).path == program


def write_program(folder: Path, script: str) -> Path:
    program = folder / "perf_analyzer"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def offered(program: Path) -> Measured:
    measured = Measured(about={})
    target = Target("127.0.0.1:1", [request(x=np.ones((1, 1), np.float32))], batched=True)
    profile = ClosedLoop("concurrency:1,2", (1, 2), 1)
    offer(Program(program, {}), target, profile, Arrivals.POISSON, 1, measured)
    return measured


def test_a_program_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    script = "echo 'error: no data'; echo; echo 'Usage: perf_analyzer'; echo 'error codes'; exit 99"
    with pytest.raises(WorldError, match=r"^`perf_analyzer` failed: error: no data$"):
        offered(write_program(tmp_path, script))


def test_a_program_of_another_machine_is_told(tmp_path: Path) -> None:
    program = write_program(tmp_path, "")
    program.write_bytes(b"\x7fELF of something else")
    with pytest.raises(WorldError, match="cannot be run: Exec format error"):
        offered(program)


def test_a_failure_without_a_word_has_its_number() -> None:
    assert failure(b"Measurement Settings\n", 127) == "it ended with 127 and said nothing"
