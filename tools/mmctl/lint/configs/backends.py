"""Words for what runs a model, platform and backend, and what is known of each backend."""

from __future__ import annotations

from collections.abc import Mapping

from mmctl.lint.code.python import code_of
from mmctl.lint.repository import PLATFORM_BACKENDS, Model
from mmctl.triton.releases import Release

KNOWN_BACKENDS = frozenset(
    {
        *("onnxruntime", "tensorrt", "pytorch", "tensorflow", "openvino", "python", "dali", "fil"),
        *("vllm", "tensorrtllm", "paddle", "fastertransformer", "fastdeploy", "armnn_tflite"),
        *("hugectr", "hps", "nvtabular", "stateful"),
        # Of Triton's own tests and examples.
        *("identity", "repeat", "square", "sequence", "dyna_sequence", "implicit_state"),
        *("iterative_sequence", "query", "distributed_addsub", "minimal", "recommended"),
    }
)
"""Backends that are published; a server may have others."""

MEANT_BACKENDS: Mapping[str, str] = {
    "onnx": "onnxruntime",
    "onnx_runtime": "onnxruntime",
    "ort": "onnxruntime",
    "trt": "tensorrt",
    "torch": "pytorch",
    "libtorch": "pytorch",
    "torchscript": "pytorch",
    "tf": "tensorflow",
    "py": "python",
    "python3": "python",
    "python_backend": "python",
    "tensorrt_llm": "tensorrtllm",
    "trtllm": "tensorrtllm",
}
"""What people write for a backend and which one they mean."""

PLATFORMS_SINCE: Mapping[str, Release] = {
    "torch_aoti": Release(26, 3),
    "libtorch": Release(26, 3),
}
"""Platforms of the pytorch backend that older releases do not know."""

OWN_PLATFORM = frozenset({"tensorflow", "tensorrt", "onnxruntime", "pytorch"})
"""Backends whose platform Triton compares; with any other backend it may be anything."""

FILL_TENSORS = frozenset({"tensorrt", "tensorflow", "openvino", "dali"})
"""Backends that fill in what an input or output in the config leaves out."""


def meant_backend(word: str) -> str:
    """The backend that a wrong word stands for without a doubt, "" where it could be another."""
    if word in KNOWN_BACKENDS:
        return ""
    if word in PLATFORM_BACKENDS:
        return PLATFORM_BACKENDS[word]
    lowered = word.strip().lower()
    if lowered in KNOWN_BACKENDS:
        return lowered
    return MEANT_BACKENDS.get(lowered, "")


def backend_of_name(model: Model) -> str:
    """The backend that the folder's name asks for, `NAME.BACKEND`; "" where it has no dot."""
    return model.name.partition(".")[2]


def brings_backend(model: Model, backend: str) -> bool:
    """Whether the library of the backend lies in the model's folder or a version of it."""
    library = f"libtriton_{backend}.so"
    return library in model.entries or any(library in names for names in model.versions.values())


def fills_tensors(model: Model) -> bool:
    """Whether what a tensor in the config leaves out may be filled in while the model loads."""
    if model.is_ensemble:
        return False
    code = code_of(model)
    return model.backend in FILL_TENSORS or (code is not None and code.completes_config)
