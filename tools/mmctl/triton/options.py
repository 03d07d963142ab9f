"""What people write about batching and instances, in model.yaml and at pipeline steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mmctl.documents import Entry, Flag
from mmctl.triton.providers import Side, provider_problem

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
    """`{name: tensorrt, parameters: {trt_cuda_graph_enable: "1"}}`, by a name of `PROVIDERS`."""

    name: str
    parameters: dict[str, str] = Field(default_factory=dict)


class OptimizationEntry(Entry):
    """Triton's `optimization` for the ONNX Runtime backend; `gpu` and `npu` are for profiles of
    their own, so that the default config loads on any machine.
    """

    graph_level: Annotated[int, Field(ge=-1, le=2)] | None = None
    gpu: tuple[AcceleratorEntry, ...] = ()
    cpu: tuple[AcceleratorEntry, ...] = ()
    npu: tuple[AcceleratorEntry, ...] = ()

    @model_validator(mode="after")
    def _triton_knows_them(self) -> OptimizationEntry:
        sides: tuple[tuple[Side, tuple[AcceleratorEntry, ...]], ...]
        sides = (("gpu", self.gpu), ("cpu", self.cpu), ("npu", self.npu))
        for side, entries in sides:
            for entry in entries:
                if problem := provider_problem(entry.name, side, entry.parameters):
                    raise ValueError(problem)
        return self


Axis = Annotated[int, Field(ge=1)]


class ShapeRange(Entry):
    """Sizes that an input with free axes has: least, usual and largest, without the batch axis."""

    min: tuple[Axis, ...]
    opt: tuple[Axis, ...]
    max: tuple[Axis, ...]

    @model_validator(mode="after")
    def _ascends(self) -> ShapeRange:
        if not len(self.min) == len(self.opt) == len(self.max):
            raise ValueError("`min`, `opt` and `max` differ in their number of axes")
        if any(
            not low <= usual <= high
            for low, usual, high in zip(self.min, self.opt, self.max, strict=True)
        ):
            raise ValueError("`min`, `opt` and `max` do not ascend in every axis")
        return self


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
    shapes: dict[str, ShapeRange] = Field(default_factory=dict)
    """By input: what TensorRT makes engines for, where axes are free."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Label file by output name; the file lies in the model's folder."""
