"""What people write about batching and instances, in model.yaml and at pipeline steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mmctl.documents import Entry, Flag

Preset = Literal["latency", "throughput", "none"]
Milliseconds = Annotated[float, Field(ge=0, le=3_600_000)]
Count = Annotated[int, Field(ge=1, le=1024)]


class Batching(Entry):
    """`max_batch` 0 means that tensors carry no batch axis."""

    max_batch: Annotated[int, Field(ge=0, le=65536)] = 8
    max_delay_ms: Milliseconds = 0
    preferred: tuple[Count, ...] = ()
    queue_timeout_ms: Milliseconds | None = None
    preserve_order: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value not in PRESETS:
            raise ValueError(f"write one of {', '.join(PRESETS)}, or {{max_batch: 8}}")
        return PRESETS[value]

    @model_validator(mode="after")
    def _sizes_fit(self) -> Batching:
        if too_large := [size for size in self.preferred if size > self.max_batch]:
            raise ValueError(f"preferred size {too_large[0]} is above max_batch {self.max_batch}")
        return self


PRESETS: dict[str, dict[str, object]] = {
    "latency": {"max_batch": 8, "max_delay_ms": 0},
    "throughput": {"max_batch": 64, "max_delay_ms": 5},
    "none": {"max_batch": 0},
}


class Instances(Entry):
    """How many copies of a model run; `gpu` is per device and for GPU profiles only."""

    cpu: Count | None = None
    gpu: Count | None = None
    devices: tuple[Annotated[int, Field(ge=0)], ...] = ()


class AcceleratorEntry(Entry):
    """`{name: tensorrt, parameters: {precision_mode: FP16}}`."""

    name: Literal["tensorrt", "cuda", "openvino", "auto_mixed_precision"]
    parameters: dict[str, str] = Field(default_factory=dict)


class OptimizationEntry(Entry):
    """Triton's `optimization` for the ONNX Runtime backend."""

    graph_level: Annotated[int, Field(ge=-1, le=2)] | None = None
    gpu: tuple[AcceleratorEntry, ...] = ()
    cpu: tuple[AcceleratorEntry, ...] = ()


class WarmupEntry(Entry):
    """One warm-up request: free axes get their size from `dims`, given per input name."""

    batch: Count = 1
    count: Count = 1
    dims: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    data: Literal["zero", "random"] = "zero"


class ServingOptions(Entry):
    """The part of model.yaml that ends in config.pbtxt and gives no new version."""

    batching: Batching = Batching()
    instances: Instances = Instances()
    optimization: OptimizationEntry | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    warmup: tuple[WarmupEntry, ...] = ()
    response_cache: Flag = False
    labels: dict[str, str] = Field(default_factory=dict)
    """Label file by output name; the file lies in the model's folder."""
