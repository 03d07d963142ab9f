"""Source `tensorrt`: an engine that is built already.

    source: {tensorrt: model.plan, batches: [1, 32], capability: "9.0"}
    inputs: {pixels: "fp32[3,224,224]"}
    outputs: {scores: "fp32[1000]"}

Nothing can read an engine without its GPU, so model.yaml says its tensors, the batch sizes of its
profile and the GPU it was built on. Its header is read, and gives its TensorRT.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from mmctl.diagnostics import Position, Severity
from mmctl.errors import Refused
from mmctl.exporters.base import Exported, Place, Say, Sha256, Source, Task
from mmctl.exporters.packages import PREFIX
from mmctl.exporters.resources import HTTPS, existing_file, is_remote, locate_file
from mmctl.exporters.tensorrt.stamp import write_stamp
from mmctl.exporters.tensorrt.target import gpu_targets
from mmctl.files import sha256_file, writing_to
from mmctl.lint.engines import EngineStamp, check_engine
from mmctl.triton.generate import TENSORRT, Backend
from mmctl.triton.options import Batching
from mmctl.triton.plan_header import read_plan_version
from mmctl.triton.releases import render_version

Size = Annotated[int, Field(ge=1)]


class TensorrtSource(Source):
    """`batches` are the least and largest of the profile; `capability` is that of the GPU."""

    backend: ClassVar[Backend] = TENSORRT

    tensorrt: str
    sha256: Sha256 | None = None
    batches: tuple[Size, Size] | None = None
    capability: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")] = ""

    @model_validator(mode="after")
    def _remote_files_are_declared(self) -> TensorrtSource:
        if is_remote(self.tensorrt) and self.sha256 is None:
            raise ValueError(
                f"`sha256` is missing: a {PREFIX} or {HTTPS} file is named by its hash"
            )
        return self

    @property
    def uses_packages(self) -> bool:
        return self.pip is not None or self.tensorrt.startswith(PREFIX)

    def refuse_batches_beyond(self, batching: Batching) -> None:
        """Raises ValueError (T002) unless the engine serves every batch that Triton may make."""
        if batching.max_batch == 0:
            return
        if self.batches is None:
            raise ValueError("`batches` is missing: the sizes of the engine's profile, [1, 32]")
        low, high = self.batches
        if low > 1 or high < batching.max_batch:
            raise ValueError(
                f"the engine takes batches of {low} to {high}, and Triton may send 1 to "
                f"{batching.max_batch}: change `max_batch`, or build another engine"
            )

    def origin(self, place: Place) -> Mapping[str, object]:
        return {
            "sha256": self.sha256 or sha256_file(existing_file(place, self.tensorrt)),
            "batches": list(self.batches or ()),
            "capability": self.capability,
        }

    def locate(self, place: Place, say: Say) -> Path:
        return locate_file(place, self.tensorrt, self.sha256, say)

    def export(self, task: Task) -> Exported:
        version = read_plan_version(task.located)
        stamp = EngineStamp(version, self.batches, self.capability)
        unsure = self._check(task, stamp)
        target = task.out / TENSORRT.filename
        with writing_to(target):
            shutil.copyfile(task.located, target)
        write_stamp(task.out, stamp)
        gate = {"gate": "plan header", "tensorrt": render_version(version), "unsure": unsure}
        return Exported(task.declared, (gate,))

    def _check(self, task: Task, stamp: EngineStamp) -> list[str]:
        """What mmctl cannot tell; raises Refused for a target that cannot load the engine."""
        position = Position(task.located.name)
        batches = self.batches[1] if self.batches else 0
        targets = gpu_targets(task.place.workspace)
        findings = [f for t in targets for f in check_engine(position, stamp, t, batches)]
        for finding in findings:
            if finding.severity is Severity.ERROR:
                raise Refused(f"{finding.code} {finding.message}", hint=finding.hint)
        return [f"{finding.code} {finding.message}" for finding in findings]
