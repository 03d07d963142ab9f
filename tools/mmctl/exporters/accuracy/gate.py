"""The accuracy gate: a converted file answers like the FP32 file, or it is refused.

accuracy     on held-out samples, in batches as large as they may be: metric against its limit
range        nothing is NaN or infinite that is a number in FP32
difference   FP16 alone: no value is far from FP32's
batch law    rows alone and in batches of 2, 3 and the most: within the precision's tolerance
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmctl.errors import InputError, Refused
from mmctl.exporters.accuracy.data import Sample, blocks_of
from mmctl.exporters.accuracy.judge import Judge, Judged
from mmctl.exporters.accuracy.rules import Answers, Rules
from mmctl.exporters.base import Evidence
from mmctl.exporters.gates import BATCHES, difference, rounded, scale_of
from mmctl.exporters.traced import ModelFails, Runner
from mmctl.tensors import Array

LARGEST_BATCH = 64
"""Larger ones are allowed to serve; here they would only cost memory."""
LAW_ROWS = 8
LARGEST_DIFFERENCE = {"fp16": 0.01}
"""Relative to the largest value of the output. INT8 may be far off in places and still right."""


@dataclass(frozen=True, slots=True)
class Files:
    """What is compared. `outputs` are the names of what both runners return, in order."""

    variant: Runner
    fp32: Runner
    outputs: Sequence[str]
    batched: bool
    max_batch: int

    @property
    def largest(self) -> int:
        return min(self.max_batch, LARGEST_BATCH)


def measure(files: Files, rules: Rules, samples: Sequence[Sample]) -> list[Judged]:
    """What the metrics say, failing ones first. Raises Refused for NaN and infinity."""
    judge = Judge(rules)
    furthest: dict[str, float] = {}
    scales: dict[str, float] = {}
    for piece in pieces_of(samples, files):
        want = _answers(files.fp32, piece.inputs, files, "the FP32 file")
        got = _answers(files.variant, piece.inputs, files, "the converted file")
        _refuse_other_shapes(got, want)
        _refuse_lost_numbers(got, want)
        for name, array in want.items():
            scales[name] = max(scales.get(name, 0.0), scale_of(array))
            far = difference(got[name], array, 1.0)
            furthest[name] = max(furthest.get(name, 0.0), far)
        judge.add(got, want, piece.labels)
    _refuse_far(furthest, scales, rules)
    return judge.judged()


def prove_accuracy(files: Files, rules: Rules, samples: Sequence[Sample]) -> list[Evidence]:
    """Raises Refused with the metric that failed."""
    judged = measure(files, rules, samples)
    failed = [one for one in judged if not one.is_within]
    if failed:
        raise Refused("; ".join(one.text() for one in failed))
    return [evidence_of(one) for one in judged]


def evidence_of(judged: Judged) -> Evidence:
    found = judged.found
    return {
        "gate": "accuracy",
        "output": judged.output,
        "metric": judged.metric,
        "drop_points" if judged.is_drop else "value": _short(found.value),
        "interval": [_short(found.low), _short(found.high)],
        "limit": judged.limit,
        "rows": found.rows,
        **({} if judged.fp32 is None else {"fp32": _short(judged.fp32)}),
        **({"warning": judged.doubt} if judged.doubt else {}),
    }


def prove_batch_law(files: Files, samples: Sequence[Sample], tolerance: float) -> Evidence:
    """Raises Refused when a row changes too much with its batch."""
    block = max(blocks_of(samples, batched=True), key=lambda sample: sample.rows)
    sizes = sorted({*BATCHES, files.largest})
    alone = [files.variant(_rows(block, [row])) for row in range(min(LAW_ROWS, block.rows))]
    worst = 0.0
    for size in sizes:
        index = [row % len(alone) for row in range(size)]
        joined = _answers(files.variant, _rows(block, index), files, f"a batch of {size}")
        for place, (name, array) in enumerate(joined.items()):
            wanted = np.concatenate([alone[row][place] for row in index])
            found = difference(array, wanted, scale_of(wanted))
            if found > tolerance:
                raise Refused(
                    f"rows change with their batch: `{name}` differs by {found:.2g} of its scale "
                    f"between alone and in a batch of {size}, the limit is {tolerance:.2g}"
                )
            worst = max(worst, found)
    return {
        "gate": "batch law",
        "batches": sizes,
        "max_difference": rounded(worst),
        "limit": tolerance,
    }


def pieces_of(samples: Sequence[Sample], files: Files) -> Iterator[Sample]:
    """Batches as large as they may be; without a batch axis each sample, one added to its labels'
    front.
    """
    for block in blocks_of(samples, batched=files.batched):
        if not files.batched:
            yield Sample(block.inputs, {name: a[None] for name, a in block.labels.items()})
            continue
        for start in range(0, block.rows, files.largest):
            yield block.cut(start, start + files.largest)


def _rows(block: Sample, index: Sequence[int]) -> dict[str, Array]:
    return {name: array[index] for name, array in block.inputs.items()}


def _answers(run: Runner, inputs: Mapping[str, Array], files: Files, what: str) -> Answers:
    """By output, with a batch axis of 1 where the model has none."""
    try:
        given = run(inputs)
    except ModelFails as error:
        kind: Any = Refused if what != "the FP32 file" else InputError
        raise kind(f"{what} fails on held-out samples: {error}") from error
    arrays = given if files.batched else [array[None] for array in given]
    return dict(zip(files.outputs, arrays, strict=True))


def _refuse_other_shapes(got: Answers, want: Answers) -> None:
    for name, array in want.items():
        if got[name].shape != array.shape:
            raise Refused(
                f"`{name}` has shape {list(got[name].shape)}, in FP32 {list(array.shape)}"
            )


def _refuse_lost_numbers(got: Answers, want: Answers) -> None:
    for name, array in want.items():
        if array.dtype.kind != "f":
            continue
        lost = np.isfinite(array) & ~np.isfinite(got[name])
        if lost.any():
            raise Refused(
                f"{lost.mean():.0%} of `{name}` is NaN or infinite where FP32 has a number"
            )


def _refuse_far(furthest: Mapping[str, float], scales: Mapping[str, float], rules: Rules) -> None:
    limit = LARGEST_DIFFERENCE.get(rules.precision)
    if limit is None:
        return
    for name, value in furthest.items():
        if value / scales[name] > limit:
            raise Refused(
                f"`{name}` differs from FP32 by {value / scales[name]:.2g} of its scale, "
                f"the limit is {limit}"
            )


def _short(value: float) -> float:
    """Four digits after the point: more would only be noise in a committed file."""
    return round(value, 4)
