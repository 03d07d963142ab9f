"""Samples to compare with: those of model.yaml's `verify`, else drawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmctl.exporters.accuracy.data import Sample, blocks_of
from mmctl.exporters.held_out import Data, load_data
from mmctl.exporters.onnx_file import open_session
from mmctl.exporters.precision.base import Batch
from mmctl.exporters.samples import Drawn, draw_example
from mmctl.exporters.sources.onnx import OnnxSource
from mmctl.exporters.spec import Model

DRAWN_ROWS = 64
"""Of the calibration as well as of the held-out samples."""
MOST_ROWS = 64
"""Of the request that speed is measured with; it is repeated for larger batches."""
DRAWN = (
    "model.yaml declares no `verify: {data: ...}`: accuracy is that on drawn inputs, which the "
    "model was not made for, and so is what static INT8 was calibrated with"
)


@dataclass(frozen=True, slots=True)
class Samples:
    """`request` is for speed, with the shapes that most held-out rows have."""

    data: Data
    request: Batch
    declared: bool

    @property
    def calibration(self) -> Sequence[Batch]:
        return [sample.inputs for sample in self.data.calibration]


def samples_of(model: Model, fp32: Path) -> Samples:
    """Raises InputError for declared samples that do not fit the model."""
    declared = model.file.verify.data is not None
    data = load_data(model, fp32) if declared else _drawn(model, fp32)
    return Samples(data, _request(data, batched=model.file.batched), declared)


def _request(data: Data, *, batched: bool) -> Batch:
    if not batched:
        return data.held_out[0].inputs
    block = max(blocks_of(data.held_out, batched=True), key=lambda sample: sample.rows)
    return block.cut(0, MOST_ROWS).inputs


def _drawn(model: Model, fp32: Path) -> Data:
    source = model.file.source
    examples = source.examples if isinstance(source, OnnxSource) else {}
    inputs = open_session(fp32).get_inputs()
    drawn = {value.name: examples.get(value.name, Drawn()) for value in inputs}
    batched = model.file.batched
    example = draw_example(inputs, drawn, batched=batched, rows=2 * DRAWN_ROWS)
    both = Sample(example.arrays, {})
    if not batched:
        return Data([both], [both])
    return Data([both.cut(0, DRAWN_ROWS)], [both.cut(DRAWN_ROWS, 2 * DRAWN_ROWS)])
