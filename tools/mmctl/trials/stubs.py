"""The folder of a stub: the signature of a model, and the shipped code that stands in. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import numpy as np

from mmctl.compiler.shipped import item_lists
from mmctl.files import render_json
from mmctl.pipeline.graph import Json
from mmctl.tensors import Array, DType, TensorSpec, TensorType
from mmctl.triton.config import ConfigTensor, InstanceGroup, ModelConfig
from mmctl.triton.generate import config_tensor
from mmctl.triton.pbtxt import render_config
from mmctl.triton.repository import CONFIG

VERSION = 1
FAULT = f"{VERSION}/fault.json"
CALLS = f"{VERSION}/calls"
ONE_PROCESS = (InstanceGroup(1, "KIND_CPU"),)
PACKED = TensorType(DType.BYTES)
"""A list tensor between models."""


@dataclass(frozen=True, slots=True)
class Stub:
    """A model that stands in for `original`, or gives the same row of `constants` always."""

    name: str
    inputs: tuple[ConfigTensor, ...]
    outputs: tuple[ConfigTensor, ...]
    max_batch: int
    original: str = ""
    version: int = -1
    constants: Mapping[str, Array] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """Texts by path inside the folder of the model."""
        config = ModelConfig(
            name=self.name,
            backend="python",
            default_model_filename="model.py",
            max_batch_size=self.max_batch,
            inputs=self.inputs,
            outputs=self.outputs,
            instances=ONE_PROCESS,
            versions=(VERSION,),
        )
        settings = {
            "original": self.original,
            "version": self.version,
            "batched": self.max_batch > 0,
            "constants": {name: _plain(row) for name, row in self.constants.items()},
        }
        return {
            CONFIG: render_config(config),
            f"{VERSION}/model.py": _code(),
            f"{VERSION}/stub.json": render_json(settings),
            FAULT: render_fault("constant" if self.constants else "none"),
        }


def stub_of(name: str, config: ModelConfig, version: int) -> Stub:
    """Takes and gives what the model with this config does, as a caller sees it."""
    inputs = tuple(_as_called(tensor) for tensor in config.inputs)
    outputs = tuple(_as_called(tensor) for tensor in config.outputs)
    return Stub(name, inputs, outputs, config.max_batch_size, config.name, version)


def constant_stub(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    values: Mapping[str, Json],
    max_batch: int,
) -> Stub:
    """Gives `values`, as `on_error` has them; list tensors are one packed value per row."""
    return Stub(
        name,
        tuple(config_tensor(sent(spec)) for spec in inputs),
        tuple(config_tensor(sent(spec)) for spec in outputs),
        max_batch,
        constants={spec.name: row_of(spec, values[spec.name]) for spec in outputs},
    )


def sent(spec: TensorSpec) -> TensorSpec:
    """A tensor as Triton knows it."""
    return replace(spec, type=PACKED) if spec.type.items else spec


def row_of(spec: TensorSpec, value: Json) -> Array:
    """The value of one row; one element fills the shape, free axes are 1."""
    kind = spec.type
    if not kind.items:
        return _filled(value, kind)
    items = [_filled(item, kind) for item in value]
    if not kind.dims:
        items = [item.reshape(()) for item in items]
    row: Array = item_lists.objects([item_lists.pack(items, str(kind.dtype), kind.dims)], (1,))
    return row


def render_fault(fault: str, sleep_ms: float = 0) -> str:
    return render_json({"fault": fault, "sleep_ms": sleep_ms})


def _filled(value: Json, kind: TensorType) -> Array:
    if kind.dtype.is_text:
        value = _encoded(value)
    if isinstance(value, list):
        array = np.array(value, kind.dtype.numpy)
        return array.reshape(*array.shape, *(abs(dim) for dim in kind.dims[array.ndim :]))
    return np.full([abs(dim) for dim in kind.triton_dims], value, kind.dtype.numpy)


def _encoded(value: Json) -> Any:
    return [_encoded(v) for v in value] if isinstance(value, list) else str(value).encode()


def _as_called(tensor: ConfigTensor) -> ConfigTensor:
    return replace(tensor, reshape=None, label_filename="", ragged=False)


def _plain(array: Array) -> dict[str, object]:
    values = array.ravel().tolist()
    if array.dtype.kind == "O":
        values = [value.hex() for value in values]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values}


def _code() -> str:
    return resources.files(__package__).joinpath("stub_model.py").read_text(encoding="utf-8")
