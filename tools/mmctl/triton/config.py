"""The part of config.pbtxt that mmctl decides about, as values.

A parsed config is read, never written back: fields that are not here would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mmctl.tensors import DType

Kind = Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL"]


@dataclass(frozen=True, slots=True)
class ConfigTensor:
    """An `input` or `output` entry. `dims` and `reshape` leave the batch axis out."""

    name: str
    dtype: DType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    ragged: bool = False
    label_filename: str = ""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How long a request may wait in a queue. There is no `max_queue_size` on purpose: inside a
    branching ensemble it hangs or crashes Triton before 26.02.
    """

    timeout_us: int
    action: Literal["REJECT", "DELAY"] = "REJECT"
    allow_override: bool = False


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """Triton's `dynamic_batching`; `preferred` empty means any size up to the maximum."""

    max_delay_us: int = 0
    preferred: tuple[int, ...] = ()
    preserve_ordering: bool = False
    queue: QueuePolicy | None = None


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """`count` is per GPU for KIND_GPU, in total for KIND_CPU."""

    count: int
    kind: Kind
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """`inputs` and `outputs` map the model's tensor names to the ensemble's."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    version: int = -1


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up request; `dims` without the batch axis."""

    dtype: DType
    dims: tuple[int, ...]
    data: Literal["zero", "random"] | str = "zero"
    """`zero`, `random`, or the name of a file in `warmup/`."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """A request that every instance runs before it is ready."""

    name: str
    batch_size: int
    inputs: Mapping[str, WarmupInput]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An execution accelerator of the ONNX Runtime backend: `tensorrt`, `cuda`, `openvino`."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Optimization:
    """`graph_level` None leaves the backend's default."""

    graph_level: int | None = None
    gpu: tuple[Accelerator, ...] = ()
    cpu: tuple[Accelerator, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One config.pbtxt. `versions` empty means Triton's default policy, the latest one."""

    name: str
    inputs: tuple[ConfigTensor, ...]
    outputs: tuple[ConfigTensor, ...]
    max_batch_size: int = 0
    backend: str = ""
    platform: str = ""
    default_model_filename: str = ""
    batching: DynamicBatching | None = None
    instances: tuple[InstanceGroup, ...] = ()
    versions: tuple[int, ...] = ()
    steps: tuple[EnsembleStep, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    optimization: Optimization | None = None
    warmups: tuple[Warmup, ...] = ()
    response_cache: bool = False
    decoupled: bool = False
