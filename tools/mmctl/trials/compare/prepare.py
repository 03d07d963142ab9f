"""The child that makes the variants: `python -m mmctl.trials.compare.prepare FOLDER`.

Reads job.json in the folder, writes the variants and a request beside it, and answers last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mmctl.errors import InputError, MmctlError
from mmctl.exporters.macs import Macs, count_macs
from mmctl.exporters.precision import SERVED
from mmctl.exporters.precision.base import Batch, Conversion
from mmctl.exporters.spec import Model, read_model
from mmctl.files import write_json
from mmctl.trials.compare.accuracy import Judge
from mmctl.trials.compare.data import DRAWN, Samples, samples_of
from mmctl.trials.compare.sessions import lacks_tensorrt
from mmctl.trials.compare.table import Accuracy, Variant
from mmctl.trials.compare.variants import Wanted, engines, file_bytes, fp32_file, wanted_variants
from mmctl.workspace import read_workspace

JOB = "job.json"
ANSWER = "answer.json"
REQUEST = "request.npz"


@dataclass(frozen=True, slots=True)
class Prepared:
    """`variants` begin with FP32. `request` describes what is in the request file."""

    variants: tuple[Variant, ...]
    notes: tuple[str, ...]
    work: Macs
    request: str
    request_file: str


def read_prepared(answer: Mapping[str, Any]) -> Prepared:
    """Out of what the child wrote as JSON."""
    variants = [
        Variant(**{**one, "accuracy": tuple(Accuracy(**a) for a in one["accuracy"])})
        for one in answer["variants"]
    ]
    return Prepared(
        variants=tuple(variants),
        notes=tuple(answer["notes"]),
        work=Macs(answer["work"]["by_operator"]),
        request=answer["request"],
        request_file=answer["request_file"],
    )


def prepare(model: Model, located: Path, folder: Path, *, every: bool) -> Prepared:
    """Raises InputError, Refused, WorldError for FP32; a variant that cannot be made is a note."""
    fp32 = fp32_file(model, located, folder / "fp32")
    samples = samples_of(model, fp32)
    np.savez(folder / REQUEST, **samples.request)
    first = _row(samples.request) if model.file.batched else samples.request
    maker = _Maker(model, fp32, samples, folder)
    maker.make_all(wanted_variants(fp32, model.file.quantize, first, every=every))
    if why := lacks_tensorrt():
        maker.notes.append(f"no TensorRT engine: {why}")
    else:
        maker.make_all(engines())
    return Prepared(
        variants=tuple(maker.variants),
        notes=tuple(maker.notes),
        work=count_macs(fp32, first),
        request=_described(first),
        request_file=str(folder / REQUEST),
    )


def _row(request: Batch) -> Batch:
    return {name: array[:1] for name, array in request.items()}


class _Maker:
    """Makes variants, each in a folder of its own; FP32 is there from the start."""

    def __init__(self, model: Model, fp32: Path, samples: Samples, folder: Path) -> None:
        self.options = model.file.quantize
        self.fp32 = fp32
        self.samples = samples
        self.folder = folder
        self.judge = Judge(model, fp32, samples)
        found = self.judge.of_fp32()
        self.variants = [Variant("fp32", "FP32", "fp32", str(fp32), file_bytes(fp32), found)]
        self.notes = [] if samples.declared else [DRAWN]

    def make_all(self, wanted: Sequence[Wanted]) -> None:
        """One that cannot be made is a note."""
        for one in wanted:
            try:
                self.variants.append(self._made(one))
            except InputError as error:
                self.notes.append(f"{one.title}: {error.message}")

    def _made(self, wanted: Wanted) -> Variant:
        folder = self.folder / wanted.name
        folder.mkdir()
        target = folder / SERVED
        with TemporaryDirectory(dir=folder, prefix="work-") as work:
            wanted.stage.convert(
                Conversion(self.fp32, target, Path(work), self.samples.calibration, self.options)
            )
        accuracy, refusal = self.judge.judge(target, wanted.precision, wanted.device)
        return Variant(
            name=wanted.name,
            title=wanted.title,
            precision=wanted.precision,
            file=str(target),
            bytes=file_bytes(target),
            accuracy=accuracy,
            refusal=refusal,
            device=wanted.device,
            experimental=wanted.experimental,
        )


def _described(request: Batch) -> str:
    return ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in request.items())


def main(words: Sequence[str]) -> None:
    folder = Path(words[0])
    job = json.loads((folder / JOB).read_text())
    try:
        model = read_model(read_workspace(Path(job["root"])), job["model"])
        answer = asdict(prepare(model, Path(job["located"]), folder, every=job["every"]))
    except MmctlError as error:
        answer = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
    write_json(folder / ANSWER, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
