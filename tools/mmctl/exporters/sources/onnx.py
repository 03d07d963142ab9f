"""Source `onnx`: a ready ONNX file, beside model.yaml, in a model package or at an https address.

source: {onnx: "package:NAME/model.onnx", sha256: ..., examples: {ids: {shape: [16], high: 1000}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from mmctl.errors import InputError
from mmctl.exporters.base import Exported, Place, Say, Sha256, Source, Task, TensorName
from mmctl.exporters.onnx_file import load_graph, open_session, prove_and_save, runner_of
from mmctl.exporters.packages import PREFIX
from mmctl.exporters.resources import HTTPS, existing_file, is_remote, locate_file
from mmctl.exporters.samples import Drawn, draw_example
from mmctl.exporters.traced import Traced
from mmctl.files import sha256_file


class OnnxSource(Source):
    """`examples` says which inputs to try the model with, by the names that are served."""

    libraries = ("onnx",)

    onnx: str
    sha256: Sha256 | None = None
    examples: Annotated[dict[TensorName, Drawn], Field(default_factory=dict)]

    @model_validator(mode="after")
    def _remote_files_are_declared(self) -> OnnxSource:
        if self.onnx.startswith("http://"):
            raise ValueError("an address starts with https://")
        if is_remote(self.onnx) and self.sha256 is None:
            raise ValueError(
                f"`sha256` is missing: a {PREFIX} or {HTTPS} file is named by its hash"
            )
        return self

    @property
    def uses_packages(self) -> bool:
        return self.pip is not None or self.onnx.startswith(PREFIX)

    def origin(self, place: Place) -> Mapping[str, object]:
        return {"sha256": self.sha256 or sha256_file(existing_file(place, self.onnx))}

    def locate(self, place: Place, say: Say) -> Path:
        return locate_file(place, self.onnx, self.sha256, say)

    def export(self, task: Task) -> Exported:
        session = open_session(task.located)
        served_names = {i.name: task.rename.get(i.name, i.name) for i in session.get_inputs()}
        if unknown := sorted(self.examples.keys() - served_names.values()):
            raise InputError(
                f"`examples` names `{unknown[0]}`, which is no input",
                hint=f"the inputs are {', '.join(f'`{n}`' for n in served_names.values())}",
            )
        drawn = {name: self.examples.get(served, Drawn()) for name, served in served_names.items()}
        example = draw_example(session.get_inputs(), drawn, batched=task.batched)
        return prove_and_save(Traced(load_graph(task.located), runner_of(session), example), task)
