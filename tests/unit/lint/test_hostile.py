"""Whatever lies in a repository, the checker answers with findings, and in time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from mmctl.building.check import check
from mmctl.lint.repository import Target
from mmctl.triton.releases import parse_release

TARGET = Target(release=parse_release("24.10"), gpus=1)

ENSEMBLE = """name: "flow" platform: "ensemble" max_batch_size: 4
input [ { name: "a" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "b" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling { step [
  { model_name: "net" model_version: -1
    input_map { key: "x" value: "a" } output_map { key: "y" value: "t" } },
  { model_name: "code" model_version: -1
    input_map { key: "x" value: "t" } output_map { key: "y" value: "b" } }
] }
"""
CODE_CONFIG = """name: "code" backend: "python" max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" } ]
dynamic_batching { preferred_batch_size: [ 2, 4 ] }
instance_group [ { kind: KIND_CPU count: 2 } ]
model_warmup [ { name: "w" batch_size: 1 inputs { key: "x" value: {
  data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "x.bin" } } } ]
"""
CODE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="net", requested_output_names=["y"], inputs=request.inputs()
            )
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            answers.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return answers
"""


def network() -> bytes:
    from onnx import TensorProto, helper

    shape = ["n", 4]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(model.SerializeToString())


FILES = {
    "flow/config.pbtxt": ENSEMBLE.encode(),
    "code/config.pbtxt": CODE_CONFIG.encode(),
    "code/1/model.py": CODE.encode(),
    "code/labels.txt": b"one\ntwo\nthree\nfour\n",
    "code/warmup/x.bin": bytes(16),
    "net/config.pbtxt": b'name: "net" platform: "onnxruntime_onnx" max_batch_size: 4\n',
    "net/1/model.onnx": network(),
}


def write(root: Path) -> Path:
    (root / "flow" / "1").mkdir(parents=True)
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def flip(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + random.randbytes(1) + content[at + 1 :]


def repeat(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    piece = content[start : start + random.randrange(1, 40)]
    at = random.randrange(len(content))
    return content[:at] + piece * random.choice([1, 2, 50]) + content[at:]


def drop(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    return content[:start] + content[start + random.randrange(1, 40) :]


def insert(content: bytes, random: Random) -> bytes:
    piece = random.choice(
        [b"{", b"}", b"[", b'"', b"\0", b"\xff\xfe", b"-1", b"99999999999999999999", b"(" * 300]
    )
    at = random.randrange(len(content))
    return content[:at] + piece + content[at:]


SPOIL: tuple[Callable[[bytes, Random], bytes], ...] = (cut, flip, repeat, drop, insert)


def test_the_repository_is_right_before_it_is_spoiled(tmp_path: Path) -> None:
    errors = [f.text() for f in check(write(tmp_path), target=TARGET) if f.severity == "error"]
    assert not errors


def test_spoiled_files_are_findings(tmp_path: Path) -> None:
    write(tmp_path)
    random = Random(3)
    found = 0
    for _ in range(250):
        name = random.choice(list(FILES))
        content = FILES[name]
        for _ in range(random.randint(1, 3)):
            content = random.choice(SPOIL)(content or b" ", random)
        (tmp_path / name).write_bytes(content)
        found += bool(check(tmp_path, target=TARGET))
        (tmp_path / name).write_bytes(FILES[name])
    assert found > 100


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_a_finding_or_silent(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    path = tmp_path / name
    for make in (
        lambda: None,
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to(tmp_path),
    ):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        make()
        check(tmp_path, target=TARGET)


MANY = 5000
LARGE: dict[str, dict[str, bytes]] = {
    "one long number": {"config.pbtxt": b"max_batch_size: " + b"1" * 300_000 + b"x"},
    "opening marks of templates": {"config.pbtxt": b'name: "' + b"{{${a{%" * 40_000 + b'"'},
    "inputs without dims": {
        "config.pbtxt": b'backend: "python"\n'
        + b"".join(b'input { name: "x%d" data_type: TYPE_FP32 }\n' % n for n in range(MANY)),
        "1/model.py": CODE.encode(),
    },
    "one name for all outputs": {
        "config.pbtxt": b'backend: "python"\n'
        + b'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }\n' * MANY,
        "1/model.py": CODE.encode(),
    },
    "entries of a map": {
        "config.pbtxt": b'platform: "onnxruntime_onnx"\n'
        + b"".join(
            b'parameters { key: "p%d" value { string_value: "1" } }\n' % n for n in range(MANY)
        )
    },
    "tensors that nobody writes": {
        "config.pbtxt": b'platform: "ensemble"\nensemble_scheduling {\n'
        + b"".join(
            b'step { model_name: "m%d" model_version: -1 '
            b'input_map { key: "x" value: "in_%dz" } output_map { key: "y" value: "out_%dz" } }\n'
            % (n, n, n)
            for n in range(1500)
        )
        + b"}",
        "1/.gitkeep": b"",
    },
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("case", LARGE)
def test_large_configs_are_judged_in_time(tmp_path: Path, case: str) -> None:
    """Each took minutes where every finding was looked for from the beginning."""
    for name, content in LARGE[case].items():
        path = tmp_path / "models" / "m" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    findings = check(tmp_path / "models")
    assert findings
    assert all(len(finding.message) <= 2000 for finding in findings)


DEEP = b"[" * 200_000
NUMBER = b"1" * 5000
ODD: dict[str, dict[str, bytes]] = {
    "engine.json nested without end": {
        "config.pbtxt": b'backend: "tensorrt"',
        "1/model.plan": b"ftrt" + bytes(24),
        "1/engine.json": DEEP,
    },
    "model.lock nested without end": {
        "config.pbtxt": b'backend: "python"',
        "model.lock": DEEP,
    },
    "thread count of thousands of digits": {
        "config.pbtxt": b'backend: "onnxruntime" parameters { key: "intra_op_thread_count" '
        b'value { string_value: "' + NUMBER + b'" } }'
    },
    "switch of thousands of digits": {
        "config.pbtxt": b'backend: "onnxruntime" parameters { key: "execution_mode" '
        b'value { string_value: "' + NUMBER + b'" } }'
    },
    "thousands of signs before a number": {
        "config.pbtxt": b'backend: "python"',
        "1/model.py": CODE.replace('"net"', "-" * 2000 + "1").encode(),
    },
}


@pytest.mark.parametrize("case", ODD)
def test_nothing_in_a_file_escapes_as_an_exception(tmp_path: Path, case: str) -> None:
    for name, content in ODD[case].items():
        path = tmp_path / "models" / "m" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    check(tmp_path / "models")
