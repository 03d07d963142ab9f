"""The kinds of source. To add one: a module here, a row below, a name in `spec.AnySource`."""

from __future__ import annotations

from mmctl.exporters.base import Source
from mmctl.exporters.sources.huggingface import HuggingfaceSource
from mmctl.exporters.sources.onnx import OnnxSource
from mmctl.exporters.sources.python import PythonSource
from mmctl.exporters.sources.tensorrt import TensorrtSource
from mmctl.exporters.sources.torch import TorchSource
from mmctl.exporters.sources.trtllm import TrtllmSource
from mmctl.exporters.sources.vllm import VllmSource

SOURCES: dict[str, type[Source]] = {
    "onnx": OnnxSource,
    "torch": TorchSource,
    "huggingface": HuggingfaceSource,
    "python": PythonSource,
    "tensorrt": TensorrtSource,
    "vllm": VllmSource,
    "trtllm": TrtllmSource,
}
"""By the key that names the source in model.yaml."""
