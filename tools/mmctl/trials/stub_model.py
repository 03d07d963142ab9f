"""The `model.py` of a stub: stands in for a model, hands requests on to it, or misbehaves.

stub.json says what it stands for, fault.json how it behaves from now on: it is read again for each
call. Every request adds a byte to the file `calls`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

LOOK_S = 0.02
"""How often a sleeper looks whether it shall go on sleeping."""
Answer = Callable[["TritonPythonModel", Any], Any]


class TritonPythonModel:
    """The face that Triton's Python backend asks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        self.folder = Path(__file__).parent
        settings = json.loads((self.folder / "stub.json").read_text(encoding="utf-8"))
        self.batched: bool = settings["batched"]
        self.original: str = settings["original"]
        self.version: int = settings["version"]
        self.constants = {n: _array(entry) for n, entry in settings["constants"].items()}

    def execute(self, requests: list[Any]) -> list[Any]:
        with (self.folder / "calls").open("ab") as file:
            file.write(b"." * len(requests))
        behaviour = self.behaviour()
        if behaviour["fault"] == "slow":
            self.sleep(behaviour)
        answer = ANSWERS[behaviour["fault"]]
        return [answer(self, request) for request in requests]

    def behaviour(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "fault.json").read_text(encoding="utf-8"))
        return found

    def sleep(self, behaviour: dict[str, Any]) -> None:
        """Until it is over, or another fault is wanted."""
        end = time.monotonic() + behaviour["sleep_ms"] / 1000
        while time.monotonic() < end and self.behaviour() == behaviour:
            time.sleep(min(LOOK_S, max(0.0, end - time.monotonic())))


def _array(entry: Mapping[str, Any]) -> Any:
    """The value of one row."""
    values = entry["values"]
    if entry["dtype"] == "object":
        array = np.empty(len(values), object)
        array[:] = [bytes.fromhex(value) for value in values]
        return array.reshape(entry["shape"])
    return np.array(values, entry["dtype"]).reshape(entry["shape"])


def _pass_on(model: TritonPythonModel, request: Any) -> Any:
    return pb_utils.InferenceResponse(_outputs(model, request))


def _outputs(model: TritonPythonModel, request: Any) -> list[Any]:
    """What the original answers. Its error is an error of ours."""
    response = pb_utils.InferenceRequest(
        model_name=model.original,
        model_version=model.version,
        requested_output_names=list(request.requested_output_names()),
        inputs=request.inputs(),
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    tensors: list[Any] = response.output_tensors()
    return tensors


def _raise(model: TritonPythonModel, request: Any) -> Any:
    raise RuntimeError("raised by the drill")


def _exit(model: TritonPythonModel, request: Any) -> Any:
    os._exit(1)


def _empty(model: TritonPythonModel, request: Any) -> Any:
    if not model.batched:
        return pb_utils.InferenceResponse([])
    return _changed(model, request, lambda array: array[:0])


def _misshaped(model: TritonPythonModel, request: Any) -> Any:
    if not model.batched:
        return _changed(model, request, lambda array: array[None])
    return _changed(model, request, lambda array: np.concatenate([array, array[-1:]]))


def _changed(model: TritonPythonModel, request: Any, change: Callable[[Any], Any]) -> Any:
    tensors = _outputs(model, request)
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(t.name(), np.ascontiguousarray(change(t.as_numpy()))) for t in tensors]
    )


def _constant(model: TritonPythonModel, request: Any) -> Any:
    rows = request.inputs()[0].shape()[0] if model.batched else None
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor(name, row if rows is None else np.repeat(row[None], rows, axis=0))
            for name, row in model.constants.items()
        ]
    )


ANSWERS: dict[str, Answer] = {
    "none": _pass_on,
    "slow": _pass_on,
    "raising": _raise,
    "empty": _empty,
    "misshaped": _misshaped,
    "dead": _exit,
    "constant": _constant,
}
