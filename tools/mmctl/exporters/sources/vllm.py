"""Source `vllm`: a language model that Triton's vLLM backend serves.

    source: {vllm: /models/llama, engine: {tensor_parallel_size: 2}, lora: {sql: /models/sql}}

The entry is `model.json`, which the backend passes whole to vLLM's `AsyncEngineArgs`, and a config
without tensors: the backend names them itself when it loads, and answers in a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from mmctl.exporters.base import Exported, Place, Say, Source, Task
from mmctl.exporters.engine import Options, ServedModel
from mmctl.files import write_json
from mmctl.tensors import Signature
from mmctl.triton.generate import VLLM, Backend

MEMORY = "gpu_memory_utilization"
MEMORY_SHARE = 0.5
"""vLLM itself would take nine tenths of a GPU that other models want a part of."""


class VllmSource(Source):
    """`vllm` is what vLLM calls `model`; `lora` are adapters by name."""

    backend: ClassVar[Backend] = VLLM

    vllm: ServedModel
    engine: Annotated[Options, Field(default_factory=dict)]
    lora: Annotated[dict[str, ServedModel], Field(default_factory=dict)]

    @field_validator("engine")
    @classmethod
    def _fits(cls, engine: dict[str, Any]) -> dict[str, Any]:
        if "model" in engine:
            raise ValueError("`model` is what `vllm` names")
        share = engine.get(MEMORY, MEMORY_SHARE)
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"`{MEMORY}` is {share!r}; write a share of a GPU above 0, at most 1")
        return engine

    @model_validator(mode="after")
    def _adapters_are_on(self) -> VllmSource:
        if self.lora and self.engine.get("enable_lora") is False:
            raise ValueError("`lora` names adapters and `enable_lora` is false")
        return self

    def origin(self, place: Place) -> Mapping[str, object]:
        return dict(self._files())

    def locate(self, place: Place, say: Say) -> Path:
        return place.folder

    def export(self, task: Task) -> Exported:
        for name, content in self._files().items():
            write_json(task.out / name, content)
        return Exported(Signature((), ()), ())

    def _files(self) -> dict[str, dict[str, Any]]:
        adapters = {"enable_lora": True} if self.lora else {}
        arguments = {"model": self.vllm, MEMORY: MEMORY_SHARE, **self.engine, **adapters}
        return {"model.json": arguments, **({"multi_lora.json": self.lora} if self.lora else {})}
