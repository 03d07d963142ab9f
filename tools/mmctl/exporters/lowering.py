"""The proven FP32 file in the precision that model.yaml asks for: accepted on evidence, or refused.

Runs in the child process of an export. Files are made in the version's temporary folder, so that a
refusal leaves nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import Refused
from mmctl.exporters.accuracy.gate import evidence_of, measure, prove_accuracy, prove_batch_law
from mmctl.exporters.accuracy.speed import evidence_of_speed, measure_speed, one_thread
from mmctl.exporters.base import Evidence
from mmctl.exporters.held_out import (
    Data,
    example_of,
    files_of,
    has_gpu,
    load_data,
    rules_of,
    speed_batches,
)
from mmctl.exporters.precision import FP16_FILE, SERVED, Planned, stages_for
from mmctl.exporters.precision.base import Batch, Conversion, Quantize, Stage
from mmctl.exporters.spec import Model
from mmctl.files import sha256_file, writing_to

Planner = Callable[[str, Path, Quantize, Batch | None], Planned]

TOLERANCES = {"fp16": 0.01, "int8-dynamic": 0.25}
"""Of the batch law. Dynamic INT8 scales a whole batch by its largest value, so that rows do depend
on their neighbours: 0.12 in the worst place of MiniLM's embedding, whose cosine stays 0.99.
"""
TOLERANCE = 0.05
"""Elsewhere a value next to a rounding border may go either way."""

TO_TRY = {
    "fp16": "name the nodes that overflow in `quantize: {exclude_nodes: [...]}`",
    "int8": "try other samples or another `calibrate`, sensitive nodes in `exclude_nodes`, or the "
    "other `method` (static, dynamic), all under `quantize:`",
    "int4": "name sensitive nodes in `quantize: {exclude_nodes: [...]}`, or use `precision: int8`",
}
NO_KERNELS = "CPUs have no FP16 kernels, and no target in mmctl.yaml has `gpus`"


@dataclass(frozen=True, slots=True)
class Lowering:
    """`known` are digests of the files of this build key whose evidence stands in the lock.

    `force` accepts what is not faster.
    """

    model: Model
    out: Path
    known: Mapping[str, str]
    force: bool
    plan: Planner = stages_for

    def run(self) -> list[Evidence]:
        """Replace the FP32 file in `out`; returns what the gates measured.

        Raises Refused with the failing metric, InputError for samples and options that do not fit.
        """
        file = self.model.file
        with tempfile.TemporaryDirectory(prefix=".work.", dir=self.out) as folder:
            fp32 = Path(folder) / SERVED
            with writing_to(self.out):
                (self.out / SERVED).replace(fp32)
            data = load_data(self.model, fp32)
            first = example_of(data.held_out[0], batched=file.batched)
            evidence: list[Evidence] = []
            for filename, stage in self.plan(file.precision, fp32, file.quantize, first):
                evidence += self._convert(fp32, filename, stage, data)
            if not (self.out / SERVED).exists():
                fp32.replace(self.out / SERVED)
        return evidence

    def _convert(self, fp32: Path, filename: str, stage: Stage, data: Data) -> list[Evidence]:
        path = self.out / filename
        with tempfile.TemporaryDirectory(dir=fp32.parent) as work:
            batches = [sample.inputs for sample in data.calibration]
            done = stage.convert(
                Conversion(fp32, path, Path(work), batches, self.model.file.quantize)
            )
        evidence: list[Evidence] = [{"gate": "conversion", **done}]
        try:
            if self.known.get(filename) != sha256_file(path):
                evidence += self._prove(fp32, path, data, str(done.get("stage", "")))
            if filename not in self.known:
                evidence.append(self._prove_speed(fp32, path, data))
        except Refused as error:
            raise Refused(f"{stage.title}: {error.message}", hint=error.hint) from error
        return [{**gate, "file": filename} for gate in evidence]

    def _prove(self, fp32: Path, path: Path, data: Data, stage: str) -> list[Evidence]:
        files = files_of(self.model, fp32, path)
        try:
            found = prove_accuracy(files, rules_of(self.model), data.held_out)
            if files.batched:
                tolerance = TOLERANCES.get(stage, TOLERANCE)
                found.append(prove_batch_law(files, data.held_out, tolerance))
        except Refused as error:
            hint = TO_TRY[self.model.file.precision]
            raise Refused(error.message, hint=f"{hint}; or keep `precision: fp32`") from error
        return found

    def _prove_speed(self, fp32: Path, path: Path, data: Data) -> Evidence:
        """Raises Refused for what is not faster on the kind of hardware that it is for."""
        half = path.name == FP16_FILE
        if path.name != SERVED and not (half and not has_gpu(self.model)):
            return {"gate": "speed", "hardware": "gpu", "not_measured": "no GPU here"}
        batches = speed_batches(self.model, data.held_out)
        speeds = measure_speed(one_thread(fp32), one_thread(path), batches)
        slow = [speed for speed in speeds if not speed.is_faster]
        if slow and not self.force:
            reason = f"; {NO_KERNELS}" if half else ""
            raise Refused(
                f"not faster than FP32 on this CPU: {slow[0].text()}{reason}",
                hint="keep `precision: fp32`, or pass `--force` to accept it all the same",
            )
        return evidence_of_speed(speeds, forced=self.force)


def prove_floor(model: Model, fp32: Path) -> list[Evidence]:
    """The FP32 file against labels: a model that was damaged before it came here is refused."""
    data = load_data(model, fp32)
    judged = measure(files_of(model, fp32, fp32), rules_of(model), data.held_out)
    scores = [one for one in judged if not one.is_drop]
    failed = [one for one in scores if not one.is_within]
    if failed:
        raise Refused(failed[0].text(), hint="find out what the model lost before it was exported")
    return [{**evidence_of(one), "file": SERVED} for one in scores]
