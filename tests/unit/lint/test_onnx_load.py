"""M007, M008 and M011 to M013: what keeps ONNX Runtime from opening a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lint_repositories import found, model
from onnx_graphs import changed, external, of_domain
from onnx_samples import identity

from mmctl.lint.onnx.load import ONNX_LOAD_CHECKS
from mmctl.lint.repository import Target
from mmctl.triton.releases import parse_release

pytest.importorskip("onnx")

CONFIG = model("x:FP32[4]", "y:FP32[4]", batch=8, backend="onnxruntime")


def judged(
    folder: Path,
    content: bytes,
    config: str = CONFIG,
    release: str | None = None,
    **beside: bytes,
) -> list[str]:
    """`severity line CODE message` of what is found; `beside` are files of the version folder."""
    files: dict[str, str | bytes] = {"m/config.pbtxt": config, "m/1/model.onnx": content}
    files |= {f"m/1/{name}": data for name, data in beside.items()}
    target = Target(release=parse_release(release) if release else None)
    findings = found(folder, files, ONNX_LOAD_CHECKS, target=target)
    return [f"{f.severity} {f.path}:{f.line} {f.code} {f.message}" for f in findings]


FILE = "m/1/model.onnx:1"

# ---------------------------------------------------------------- M007


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        pytest.param({"location": "w"}, None, id="all of a file"),
        pytest.param({"location": "w", "offset": "0", "length": "64"}, None, id="a part of one"),
        pytest.param({"location": "./w"}, None, id="beside it"),
        pytest.param({"location": "gone"}, "in `gone`, which is not there", id="gone"),
        pytest.param({}, "in another file without saying in which", id="nowhere"),
        pytest.param(
            {"location": "w", "offset": "4"},
            "in `w` up to byte 68, and that file has 64",
            id="short",
        ),
        pytest.param(
            {"location": "w", "length": "32"},
            "in `w`, 32 bytes long, and the tensor has 64",
            id="size",
        ),
        pytest.param(
            {"location": "w", "offset": "x"}, "at an `offset` that is no number", id="offset"
        ),
        pytest.param(
            {"location": "w", "offset": "-4"}, "up to byte 60, and that file has 64", id="before"
        ),
    ],
)
def test_weights_lie_where_the_file_says(
    tmp_path: Path, entries: dict[str, str], said: str | None
) -> None:
    findings = judged(tmp_path, external(**entries), w=bytes(64))
    if said is None:
        assert findings == []
    else:
        (finding,) = findings
        assert finding.startswith(f"error {FILE} M007 `1/model.onnx` has the weights of `w` ")
        assert said in finding


@pytest.mark.parametrize(
    ("release", "severity"),
    [(None, "warning"), ("24.10", None), ("25.12", None), ("26.02", "error"), ("26.08", "error")],
)
def test_weights_elsewhere_are_refused_from_26_02_on(
    tmp_path: Path, release: str | None, severity: str | None
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    findings = judged(tmp_path, external(location="../w.bin"), release=release)
    if severity is None:
        assert findings == []
    else:
        (finding,) = findings
        assert finding.startswith(f"{severity} {FILE} M007 ")
        assert (
            "outside its folder, in `../w.bin`, which ONNX Runtime refuses from 1.24 on" in finding
        )


def test_one_file_is_one_finding(tmp_path: Path) -> None:
    def another(graph: Any) -> None:
        copy = graph.graph.initializer.add()
        copy.CopyFrom(graph.graph.initializer[0])
        copy.name = "v"

    (finding,) = judged(tmp_path, changed(external(location="gone"), another))
    assert "has the weights of `w` and 1 more in `gone`" in finding


# ---------------------------------------------------------------- M008


def of_versions(ir: int = 8, opset: int = 17, ml: int = 0) -> bytes:
    def age(graph: Any) -> None:
        graph.ir_version = ir
        graph.opset_import[0].version = opset
        if ml:
            graph.opset_import.add(domain="ai.onnx.ml", version=ml)

    return changed(identity(), age)


@pytest.mark.parametrize(
    ("content", "release", "said"),
    [
        pytest.param(of_versions(10, 21), "24.10", None, id="as new as it may be"),
        pytest.param(
            of_versions(11),
            "24.10",
            "has IR version 11, and the ONNX Runtime 1.19 of Triton 24.10 reads up to 10",
            id="IR version",
        ),
        pytest.param(of_versions(opset=22), "24.10", "has opset 22", id="opset"),
        pytest.param(of_versions(opset=22), "25.03", None, id="a later release"),
        pytest.param(of_versions(11, 23), None, None, id="no release"),
        pytest.param(of_versions(14, 28, 5), None, None, id="as new as anything is"),
        pytest.param(
            of_versions(99),
            None,
            "has IR version 99, and ONNX Runtime 1.32, the latest that mmctl knows, reads up to 14",
            id="newer than anything",
        ),
        pytest.param(
            of_versions(15),
            "26.09",
            "has IR version 15, and ONNX Runtime 1.32, the latest that mmctl knows,",
            id="a release of which nothing is known",
        ),
        pytest.param(
            of_versions(11),
            "24.03",
            "has IR version 11, and ONNX Runtime 1.19, which is later than that of Triton 24.03,",
            id="a release before the table",
        ),
        pytest.param(of_versions(ml=6), None, "has opset of `ai.onnx.ml` 6", id="ai.onnx.ml"),
    ],
)
def test_a_file_is_not_newer_than_the_server(
    tmp_path: Path, content: bytes, release: str | None, said: str | None
) -> None:
    findings = judged(tmp_path, content, release=release)
    assert len(findings) == (said is not None)
    if said is not None:
        assert findings[0].startswith(f"error {FILE} M008 ")
        assert said in findings[0]


# ---------------------------------------------------------------- M011


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"text", "is no ONNX file"),
        (identity()[:-5], "is no ONNX file, or cut off"),
    ],
)
def test_what_is_no_model_is_an_error(tmp_path: Path, content: bytes, said: str) -> None:
    (finding,) = judged(tmp_path, content)
    assert finding.startswith(f"error {FILE} M011 `1/model.onnx` {said}")


def test_without_the_onnx_package_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = identity()
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    files = {f"{name}/1/model.onnx": content for name in ("a", "b", "c")}
    (finding,) = found(tmp_path, files, ONNX_LOAD_CHECKS)
    assert (finding.code, finding.severity.value, finding.path) == (
        "M011",
        "info",
        "a/1/model.onnx",
    )
    assert "the Python package `onnx` is not installed" in finding.message


# ---------------------------------------------------------------- M012

LIBRARY = CONFIG + 'model_operations { op_library_filename: "/opt/ops.so" }'


@pytest.mark.parametrize(
    ("make", "config", "count"),
    [
        pytest.param(partial(of_domain, "my.ops"), CONFIG, 1, id="nobody has it"),
        pytest.param(partial(of_domain, "my.ops"), LIBRARY, 0, id="a library may"),
        pytest.param(partial(of_domain, "com.microsoft"), CONFIG, 0, id="ONNX Runtime has it"),
    ],
)
def test_operators_need_their_library(
    tmp_path: Path, make: Callable[[], bytes], config: str, count: int
) -> None:
    findings = judged(tmp_path, make(), config)
    assert len(findings) == count
    assert all("uses the operator `Identity` of `my.ops`" in finding for finding in findings)


# ---------------------------------------------------------------- M013


def parameter(key: str, value: str) -> str:
    return f'{CONFIG}parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("intra_op_thread_count", "2", None),
        ("intra_op_thread_count", " 2x", None),
        ("intra_op_thread_count", "abc", "takes a whole number, and is `abc`"),
        ("inter_op_thread_count", "", "takes a whole number, and is ``"),
        ("intra_op_thread_count", "99999999999", "no 32-bit integer holds: the server aborts"),
        ("execution_mode", "1", None),
        ("execution_mode", "2", "takes 0 or 1, and is `2`"),
        ("enable_mem_arena", "ON", None),
        ("enable_mem_pattern", "yes", "takes true or false, and is `yes`"),
        ("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:0", None),
        ("memory.enable_memory_arena_shrinkage", "all", "names `all`"),
        ("my_own", "anything", None),
    ],
)
def test_parameters_are_read_as_the_backend_reads_them(
    tmp_path: Path, key: str, value: str, said: str | None
) -> None:
    findings = judged(tmp_path, identity(), parameter(key, value))
    assert len(findings) == (said is not None)
    if said is not None:
        assert findings[0].startswith("error m/config.pbtxt:5 M013 ")
        assert said in findings[0]


@pytest.mark.parametrize(("name", "count"), [("openvino", 0), ("warp", 1)])
def test_accelerators_are_known(tmp_path: Path, name: str, count: int) -> None:
    entry = f'cpu_execution_accelerator: {{ name: "{name}" }}'
    more = f"optimization {{ execution_accelerators {{\n {entry} }} }}"
    findings = judged(tmp_path, identity(), CONFIG + more)
    assert len(findings) == count
    assert all(
        f == "error m/config.pbtxt:6 M013 the ONNX backend has no accelerator `warp` for CPUs"
        for f in findings
    )


def test_parameters_are_judged_without_a_file(tmp_path: Path) -> None:
    files = {"m/config.pbtxt": parameter("execution_mode", "2")}
    assert [f.code for f in found(tmp_path, files, ONNX_LOAD_CHECKS)] == ["M013"]


def test_other_backends_have_other_parameters(tmp_path: Path) -> None:
    files = {"m/config.pbtxt": parameter("execution_mode", "2").replace("onnxruntime", "python")}
    assert found(tmp_path, files, ONNX_LOAD_CHECKS) == ()
