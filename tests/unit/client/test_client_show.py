"""The same request in other forms; the live tests run what is printed here."""

from __future__ import annotations

import base64
import json
import re
import shlex
from pathlib import Path

import numpy as np

from mmctl.client.requests import arrays_for
from mmctl.client.show import Call, show_curl, show_perf_analyzer, show_python
from mmctl.client.sources import FromFile, FromNpy, Source, read_source
from mmctl.tensors import Signature, TensorSpec, parse_type


def call(sources: dict[str, Source], max_batch: int = 4, outputs: str = "y: fp32", **types: str):
    name, kind = outputs.split(": ")
    signature = Signature(
        tuple(TensorSpec(n, parse_type(t)) for n, t in types.items()),
        (TensorSpec(name, parse_type(kind)),),
        max_batch,
    )
    values = {n: read_source(source, n) for n, source in sources.items()}
    arrays = arrays_for("tag", values, signature)
    return Call("tag", sources, arrays, signature, "127.0.0.1:8001", "127.0.0.1:8000")


def test_python(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff")
    np.save(tmp_path / "x.npy", np.ones(4))
    sources: dict[str, Source] = {
        "text": 'say "hi"',
        "image": FromFile(tmp_path / "a.jpg"),
        "x": FromNpy(tmp_path / "x.npy"),
    }
    shown = show_python(call(sources, text="bytes", image="bytes", x="fp32[4]"))
    assert (
        shown.replace(str(tmp_path), "DIR")
        == """\
from pathlib import Path

import mmctl
import numpy as np

with mmctl.Client("127.0.0.1:8001") as client:
    answer = client.infer(
        "tag",
        {
            "text": "say \\"hi\\"",
            "image": Path("DIR/a.jpg").read_bytes(),
            "x": np.load("DIR/x.npy"),
        },
    )
for name, array in answer.outputs.items():
    print(name, array.tolist())"""
    )


def test_python_compiles_whatever_the_values_are() -> None:
    sources: dict[str, Source] = {"text": "a\x1b\n'\"\\", "x": [float("nan"), float("-inf"), 1, 2]}
    shown = show_python(call(sources, text="bytes", x="fp32[4]"))
    compile(shown, "shown", "exec")
    assert 'float("nan")' in shown


def test_curl_sends_texts_and_numbers_as_json() -> None:
    shown = show_curl(call({"text": "it's 你好", "x": [1, 2]}, text="bytes", x="fp32[2]"))
    words = shlex.split(shown)
    assert words[:3] == ["curl", "-sS", "http://127.0.0.1:8000/v2/models/tag/infer"]
    assert json.loads(words[-1]) == {
        "inputs": [
            {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["it's 你好"]},
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]},
        ]
    }


def test_curl_sends_a_file_as_it_is_behind_the_json(tmp_path: Path) -> None:
    path = tmp_path / "my photo.jpg"
    path.write_bytes(b"\xff" * 300)
    shown = show_curl(call({"text": "é", "image": FromFile(path)}, text="bytes", image="bytes"))
    header = re.search(r"printf '%s' '(\{.*\})'", shown)
    assert header is not None
    assert f"Inference-Header-Content-Length: {len(header[1].encode())}" in shown
    assert json.loads(header[1])["inputs"][1]["parameters"] == {"binary_data_size": 304}
    assert f"printf '\\054\\001\\000\\000'\n  cat -- '{path}'" in shown


def test_curl_sends_what_json_cannot_carry_as_bytes() -> None:
    shown = show_curl(call({"x": [1, 2], "y": [float("nan")]}, x="fp16[2]", y="fp32"))
    assert base64.b64encode(np.array([1, 2], "<f2").tobytes()).decode() in shown
    assert "NaN" not in shown


def test_curl_asks_for_fp16_outputs_as_bytes() -> None:
    shown = show_curl(call({"x": 1}, outputs="y: fp16", x="fp32"))
    assert '"outputs": [{"name": "y", "parameters": {"binary_data": true}}]' in shown


def test_a_large_request_does_not_become_one_argument_of_a_program() -> None:
    shown = show_curl(call({"text": "a" * 200_000}, text="bytes"))
    assert shown.startswith("printf '%s' ")
    assert "--data-binary @-" in shown


def requests_of(shown: str) -> list[dict[str, object]]:
    match = re.fullmatch(r"cat > (\S+) <<'JSON'\n(.*)\nJSON\nperf_analyzer .*", shown)
    assert match is not None
    entries: list[dict[str, object]] = json.loads(match[2])["data"]
    return entries


def test_perf_analyzer_gets_one_entry_per_row_without_the_batch_axis() -> None:
    shown = show_perf_analyzer(
        call({"text": ["a", "b"], "x": [[1, 2], [3, 4]]}, text="bytes", x="fp32[2]")
    )
    assert requests_of(shown) == [
        {
            "text": {"content": ["a"], "shape": [1]},
            "x": {"content": [1.0, 2.0], "shape": [2]},
        },
        {
            "text": {"content": ["b"], "shape": [1]},
            "x": {"content": [3.0, 4.0], "shape": [2]},
        },
    ]
    assert shown.endswith(
        "perf_analyzer -m tag -i grpc -u 127.0.0.1:8001 --input-data tag.requests.json -b 2"
    )


def test_perf_analyzer_gets_bytes_as_they_are_on_the_wire(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    shown = show_perf_analyzer(call({"image": FromFile(tmp_path / "a.jpg")}, image="bytes"))
    wire = base64.b64encode(b"\x02\x00\x00\x00\xff\xd8").decode()
    assert requests_of(shown) == [{"image": {"content": {"b64": wire}, "shape": [1]}}]


def test_a_model_without_batches_is_one_entry_and_no_batch_size() -> None:
    shown = show_perf_analyzer(call({"x": [1, 2]}, max_batch=0, x="int32[2]"))
    assert requests_of(shown) == [{"x": {"content": [1, 2], "shape": [2]}}]
    assert " -b " not in shown
