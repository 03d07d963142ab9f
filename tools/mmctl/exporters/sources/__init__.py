"""The kinds of source. To add one: a module here, a row below, a name in `spec.AnySource`."""

from __future__ import annotations

from mmctl.exporters.base import Source
from mmctl.exporters.sources.huggingface import HuggingfaceSource
from mmctl.exporters.sources.onnx import OnnxSource
from mmctl.exporters.sources.python import PythonSource
from mmctl.exporters.sources.torch import TorchSource

SOURCES: dict[str, type[Source]] = {
    "onnx": OnnxSource,
    "torch": TorchSource,
    "huggingface": HuggingfaceSource,
    "python": PythonSource,
}
"""By the key that names the source in model.yaml."""
