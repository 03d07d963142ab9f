"""`verify:` in model.yaml: on which samples a model is proven, by which metric, how well."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mmctl.documents import Entry
from mmctl.exporters.base import matching
from mmctl.exporters.precision.base import Quantize

Precision = Literal["fp32", "fp16", "int8", "int4"]

FUNCTION = r"[A-Za-z_]\w*:[A-Za-z_]\w*"
FILE = r"[\w-]+(/[\w-]+)*\.(npz|jsonl)"

Samples = Annotated[
    str, matching(f"{FUNCTION}|{FILE}", "`module:function`, or an .npz or .jsonl file")
]
"""A generator, or a file, of the workspace's folder calibration/."""

METRICS = ("agreement", "cosine", "closeness", "accuracy", "bleu", "rouge")
Metric = Annotated[
    str,
    matching("|".join((*METRICS, FUNCTION)), f"one of {', '.join(METRICS)}, or `module:function`"),
]


class Verify(Entry):
    """`tolerance` is for the FP32 file: relative to the largest value of an output.

    `min` is the least that the metric may be. `max_drop` is how much it may fall below FP32 on
    labels, in points (hundredths).
    """

    tolerance: Annotated[float, Field(gt=0, le=0.01)] = 1e-5
    calibration: Samples | None = None
    data: Samples | None = None
    metric: Metric | None = None
    min: Annotated[float, Field(allow_inf_nan=False)] | None = None
    max_drop: Annotated[float, Field(ge=0, le=100)] = 1

    @model_validator(mode="after")
    def _held_out(self) -> Verify:
        if self.data is not None and self.data == self.calibration:
            raise ValueError(
                f"`calibration` and `data` are both `{self.data}`: nothing is proven on the "
                "samples that a model was calibrated with"
            )
        return self

    @property
    def has_floor(self) -> bool:
        """Whether the FP32 file, too, has to reach a score on labels."""
        if self.data is None or self.min is None:
            return False
        return self.metric == "accuracy" or (self.metric is not None and ":" in self.metric)


def check_precision(precision: Precision, quantize: Quantize, verify: Verify) -> None:
    """Raises ValueError for options that do not go together."""
    if precision == "fp32":
        if quantize != Quantize():
            raise ValueError("`quantize` is for other precisions than fp32")
        return
    if verify.data is None:
        raise ValueError(
            f"`precision: {precision}` is proven on samples: write `verify: {{data: "
            '"module:function"}`, a generator in calibration/module.py'
        )
    measures_ranges = quantize.method == "static" or quantize.tensorrt
    if precision == "int8" and measures_ranges and verify.calibration is None:
        raise ValueError(
            'static INT8 measures ranges: write `verify: {calibration: "module:function"}`, '
            "other samples than those of `data`"
        )
