"""What can run an ONNX model faster than the plain CPU: one row an accelerator."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from mmctl.errors import InputError, WorldError

Side = Literal["gpu", "cpu", "npu"]


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider of ONNX Runtime, named as config.pbtxt names the accelerator.

    `wheel` brings it to Python. `parameters` are those that Triton passes on; None where it passes
    all. `side` is the key under `optimization`. NVIDIA's ONNX Runtime backend refuses the names of
    NPUs: they need one that was built with the vendor's ONNX Runtime.
    """

    name: str
    title: str
    side: Side
    execution_provider: str
    wheel: str
    parameters: frozenset[str] | None


TENSORRT_PARAMETERS = frozenset(
    {
        *("precision_mode", "max_workspace_size_bytes"),
        *("int8_calibration_table_name", "int8_use_native_calibration_table"),
        *("trt_max_partition_iterations", "trt_min_subgraph_size"),
        *("trt_dla_enable", "trt_dla_core", "trt_dump_subgraphs"),
        *("trt_engine_cache_enable", "trt_engine_cache_path", "trt_engine_cache_prefix"),
        *("trt_timing_cache_enable", "trt_timing_cache_path", "trt_force_timing_cache"),
        *("trt_force_sequential_engine_build", "trt_context_memory_sharing_enable"),
        *("trt_layer_norm_fp32_fallback", "trt_detailed_build_log"),
        *("trt_build_heuristics_enable", "trt_sparsity_enable"),
        *("trt_builder_optimization_level", "trt_auxiliary_streams", "trt_tactic_sources"),
        *("trt_extra_plugin_lib_paths", "trt_cuda_graph_enable"),
        *("trt_profile_min_shapes", "trt_profile_opt_shapes", "trt_profile_max_shapes"),
        *("trt_dump_ep_context_model", "trt_ep_context_file_path", "trt_ep_context_embed_mode"),
    }
)
"""Any other stops the model from loading: "unknown parameter ... is provided"."""

PROVIDERS: dict[str, Provider] = {
    row.name: row
    for row in (
        Provider(
            "tensorrt",
            "NVIDIA TensorRT",
            "gpu",
            "TensorrtExecutionProvider",
            "onnxruntime-gpu",
            TENSORRT_PARAMETERS,
        ),
        Provider("cuda", "NVIDIA CUDA", "gpu", "CUDAExecutionProvider", "onnxruntime-gpu", None),
        Provider(
            "openvino",
            "Intel OpenVINO",
            "cpu",
            "OpenVINOExecutionProvider",
            "onnxruntime-openvino",
            frozenset(),
        ),
        Provider(
            "cann",
            "Huawei Ascend CANN",
            "npu",
            "CANNExecutionProvider",
            "onnxruntime-cann",
            None,
        ),
        Provider(
            "qnn",
            "Qualcomm QNN",
            "npu",
            "QNNExecutionProvider",
            "onnxruntime-qnn",
            None,
        ),
        Provider(
            "vitisai",
            "AMD Vitis AI",
            "npu",
            "VitisAIExecutionProvider",
            "onnxruntime-vitisai",
            None,
        ),
    )
}

RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-cann")
"""Distributions that all install into one folder, `onnxruntime/`. QNN's is a plug-in beside it."""


def provider_problem(name: str, side: Side, parameters: Mapping[str, str]) -> str | None:
    """What is wrong with an entry under `optimization`; None when Triton can take it."""
    row = PROVIDERS.get(name)
    if row is None:
        return f"`{name}` is no accelerator; known: {', '.join(PROVIDERS)}"
    if row.side != side:
        return f"`{name}` belongs under `{row.side}`"
    unknown = sorted(set(parameters) - row.parameters) if row.parameters is not None else []
    return f"`{name}` has no parameter `{unknown[0]}` in Triton" if unknown else None


def require_provider(name: str, available: Collection[str], used: Collection[str]) -> None:
    """Raises WorldError unless a session runs on the provider that was asked for.

    `available` is what `onnxruntime.get_available_providers()` gives. `used` is what
    `session.get_providers()` does: ONNX Runtime goes on with the CPU when a provider fails to load
    its libraries, and only this list tells.
    """
    row = PROVIDERS[name]
    if row.execution_provider not in available:
        raise WorldError(
            f"{row.title} needs {row.execution_provider}, which the onnxruntime of this machine "
            "does not have",
            hint=f"install `{row.wheel}` in place of `onnxruntime`, on a machine that has the "
            "device",
        )
    if row.execution_provider not in used:
        raise WorldError(
            f"{row.title} was asked for, and ONNX Runtime fell back to "
            f"{', '.join(used) or 'nothing'} without an error",
            hint=f"read its first lines on stderr: a library that {row.execution_provider} "
            "loads is missing, or there is no device",
        )


def installed_runtimes() -> tuple[str, ...]:
    """Distributions of ONNX Runtime in this environment."""
    found = {dist.metadata["Name"] for dist in importlib.metadata.distributions()}
    return tuple(name for name in RUNTIMES if name in found)


def check_runtimes(installed: Collection[str]) -> None:
    """Raises InputError when several are installed: the later one overwrote files of the other."""
    if len(installed) > 1:
        names = " and ".join(f"`{name}`" for name in installed)
        raise InputError(
            f"{names} are both installed, and share one folder: which one runs is an accident",
            hint=f"run `pip uninstall {' '.join(installed)}`, then install the one that you want",
        )
