"""Accelerators: what Triton takes, and what a machine must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmctl.errors import InputError, WorldError
from mmctl.exporters.keys import require_libraries
from mmctl.triton.providers import (
    PROVIDERS,
    Side,
    check_runtimes,
    installed_runtimes,
    provider_problem,
    require_provider,
)

CPU = "CPUExecutionProvider"


@pytest.mark.parametrize(
    ("name", "side", "parameters", "problem"),
    [
        pytest.param("tensorrt", "gpu", {"trt_cuda_graph_enable": "1"}, None, id="known"),
        pytest.param("cuda", "gpu", {"gpu_mem_limit": "1"}, None, id="cuda passes all on"),
        pytest.param("openvino", "cpu", {}, None, id="openvino"),
        pytest.param("cann", "npu", {"npu_mem_limit": "1"}, None, id="an NPU"),
        pytest.param("tensorrt", "cpu", {}, "`tensorrt` belongs under `gpu`", id="wrong side"),
        pytest.param("tensorrt", "gpu", {"fp16": "1"}, "no parameter `fp16`", id="parameter"),
        pytest.param(
            "openvino", "cpu", {"device": "NPU"}, "no parameter `device`", id="takes none"
        ),
        pytest.param("coreml", "cpu", {}, "known: tensorrt, cuda, openvino, cann", id="name"),
    ],
)
def test_what_triton_would_not_load_is_said_before(
    name: str, side: Side, parameters: dict[str, str], problem: str | None
) -> None:
    found = provider_problem(name, side, parameters)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_that_is_not_here_names_its_wheel(name: str) -> None:
    with pytest.raises(WorldError, match=PROVIDERS[name].execution_provider) as caught:
        require_provider(name, available=[CPU], used=[CPU])
    assert f"`{PROVIDERS[name].wheel}`" in (caught.value.hint or "")


def test_a_silent_fall_back_to_the_cpu_is_an_error() -> None:
    available = ["CUDAExecutionProvider", CPU]
    with pytest.raises(WorldError, match="fell back to CPUExecutionProvider without an error"):
        require_provider("cuda", available, used=[CPU])
    require_provider("cuda", available, used=available)


def test_the_providers_of_a_real_session_are_what_is_checked() -> None:
    runtime = pytest.importorskip("onnxruntime")
    with pytest.raises(WorldError, match="does not have"):
        require_provider("tensorrt", runtime.get_available_providers(), [CPU])


def test_two_runtimes_in_one_folder_are_an_error() -> None:
    with pytest.raises(InputError, match="`onnxruntime` and `onnxruntime-gpu` are both") as caught:
        check_runtimes(["onnxruntime", "onnxruntime-gpu"])
    assert "pip uninstall onnxruntime onnxruntime-gpu" in (caught.value.hint or "")


def test_two_runtimes_that_are_installed_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        info = tmp_path / f"{name.replace('-', '_')}-1.31.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.31.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_runtimes() == ("onnxruntime", "onnxruntime-gpu")
    with pytest.raises(InputError, match="which one runs is an accident"):
        require_libraries([])


def test_this_environment_has_one_at_most() -> None:
    check_runtimes(installed_runtimes())
