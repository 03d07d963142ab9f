"""Source `trtllm`: a language model that TensorRT-LLM's LLM API serves, without an engine build.

    source: {trtllm: /models/llama, engine: {tensor_parallel_size: 2}}

Generated is `model.yaml` in the version folder. The Python model that reads it is the vendor's and
belongs to the release that serves: it comes out of the container image into the folder `vendor`
beside our own model.yaml (the export says how), and goes into the version unchanged. Its
config.pbtxt says the tensors.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import Field, field_validator

from mmctl.exporters.base import Exported, Place, Say, Source, Task
from mmctl.exporters.engine import Options, ServedModel
from mmctl.files import read_text, sha256_file, write_text, writing_to
from mmctl.tensors import Signature
from mmctl.triton.generate import TRTLLM, Backend
from mmctl.triton.pbtxt import parse_config, signature_of
from mmctl.triton.repository import CONFIG

VENDOR = "vendor"
ENTRY = "model.yaml"
IN_THE_IMAGE = "/app/all_models/llmapi/tensorrt_llm"
IMAGE = "nvcr.io/nvidia/tritonserver:YY.MM-trtllm-python-py3"
COPY = 'docker run --rm -v "$PWD/{folder}:/entry" {image} cp -r {source} /entry/{vendor}'

PARTS = {"backend": "pytorch", "tensor_parallel_size": 1, "pipeline_parallel_size": 1}
TRITON = {"max_batch_size": 0, "decoupled": False}
"""The vendor's model takes no batches: the engine joins requests by itself."""


class TrtllmSource(Source):
    """`trtllm` is what the LLM API calls `model`; `engine` are its other arguments."""

    backend: ClassVar[Backend] = TRTLLM

    trtllm: ServedModel
    engine: Annotated[Options, Field(default_factory=dict)]

    @field_validator("engine")
    @classmethod
    def _fits(cls, engine: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted({"model", "triton_config"} & set(engine)):
            raise ValueError(f"`{taken[0]}` is written by mmctl")
        return engine

    def origin(self, place: Place) -> Mapping[str, object]:
        config = place.folder / VENDOR / CONFIG
        read = {**_programs(place), **({CONFIG: config} if config.is_file() else {})}
        files = {name: sha256_file(path) for name, path in read.items()}
        return {"entry": self._entry(), "vendor": files}

    def locate(self, place: Place, say: Say) -> Path:
        if not _is_whole(place):
            command = COPY.format(
                folder=place.shown, image=IMAGE, source=IN_THE_IMAGE, vendor=VENDOR
            )
            say(
                f"{place.name}: {ENTRY} alone does not load; copy the vendor's files with the "
                f"release that serves for YY.MM, then export again:\n  {command}"
            )
        return place.folder / VENDOR

    def export(self, task: Task) -> Exported:
        text = yaml.safe_dump(self._entry(), sort_keys=False, allow_unicode=True)
        write_text(task.out / ENTRY, text)
        if not _is_whole(task.place):
            return Exported(Signature((), ()), ())
        for name, path in _programs(task.place).items():
            with writing_to(task.out / name):
                shutil.copyfile(path, task.out / name)
        config = task.located / CONFIG
        where = task.place.workspace.shown(config)
        return Exported(signature_of(parse_config(read_text(config), where=where)), ())

    def _entry(self) -> dict[str, Any]:
        return {"model": self.trtllm, **PARTS, **self.engine, "triton_config": TRITON}


def _programs(place: Place) -> dict[str, Path]:
    """The vendor's Python files by name."""
    return {path.name: path for path in sorted((place.folder / VENDOR / "1").glob("*.py"))}


def _is_whole(place: Place) -> bool:
    return "model.py" in _programs(place) and (place.folder / VENDOR / CONFIG).is_file()
