"""The ONNX backend without a server: its file, and a stand-in for Triton's own module."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from mmctl.triton import onnx_backend as rules

BACKEND = "tools/mmctl/server/backends/onnxruntime/model.py"


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class TritonError(Exception):
    INTERNAL, UNSUPPORTED = "INTERNAL", "UNSUPPORTED"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        self.message, self.code = message, code


class InferenceResponse:
    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None
    ) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


class Logger:
    lines: ClassVar[list[str]] = []

    @classmethod
    def log_warn(cls, message: str) -> None:
        cls.lines.append(message)


class Request:
    def __init__(self, inputs: dict[str, Any], request_id: str = "") -> None:
        self._inputs = [Tensor(name, np.asarray(value)) for name, value in inputs.items()]
        self._id = request_id

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        return self._id


def load_backend(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The backend's module as a stub imports it."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    triton = ModuleType("triton_python_backend_utils")
    for kind in (Tensor, TritonError, InferenceResponse, Logger):
        setattr(triton, kind.__name__, kind)
    Logger.lines = []
    monkeypatch.setitem(sys.modules, triton.__name__, triton)
    monkeypatch.setitem(sys.modules, "onnx_backend", rules)
    spec = importlib.util.spec_from_file_location("onnx_backend_model", root / BACKEND)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
