"""What an exported model must prove before it gets a version number.

    repeatable   the source gives the same answer twice
    parity       the served file gives what its source gives, at batches 1, 2, 3 and other lengths
    batch law    f(concat(a, b)) = concat(f(a), f(b)): a row does not depend on its neighbours

Differences are relative to the scale of the output: the largest value that the source gives for the
example. Rule 10 of the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mmctl.errors import InputError, Refused
from mmctl.exporters.base import Evidence
from mmctl.exporters.samples import Example
from mmctl.exporters.traced import ModelFails, Runner
from mmctl.tensors import Array

BATCHES = (1, 2, 3)
FACTORS = (0.5, 2)
"""Free axes are tried at these multiples of the example's length too."""

SMALLEST_SCALE = 0.01
"""Saturated outputs are tiny: a sigmoid's 1e-9 has no five digits in any two libraries."""

UNBATCHED_HINT = "make every row independent of the others, or write `batching: none` in model.yaml"


def prove(
    served: Runner,
    source: Runner,
    outputs: Sequence[str],
    example: Example,
    *,
    batched: bool,
    tolerance: float,
) -> tuple[Evidence, ...]:
    """Evidence of the gates, in order. Raises Refused with the number that was too large."""
    trials = [example.rows(count) for count in BATCHES] if batched else [example.arrays]
    scales = _scales_of_repeatable(source, outputs, trials, tolerance)
    gates = _Gates(served, source, scales, tolerance)
    parity = gates.check_parity(example, batched=batched)
    return (parity, gates.check_batch_law(example)) if batched else (parity,)


def _scales_of_repeatable(
    source: Runner, outputs: Sequence[str], trials: Sequence[Mapping[str, Array]], tolerance: float
) -> dict[str, float]:
    """Scale of each output, from the largest trial that the source takes; it must do so twice."""
    for arrays in reversed(trials):
        try:
            first, again = source(arrays), source(arrays)
            break
        except ModelFails as error:
            why = error
    else:
        raise InputError(
            f"the source cannot run its own example inputs: {why}",
            hint="give inputs that it can take (`examples` of an onnx source, or build())",
        )
    scales = dict(zip(outputs, map(scale_of, first), strict=True))
    for name, a, b in zip(outputs, first, again, strict=True):
        if (found := difference(a, b, scales[name])) > tolerance:
            raise Refused(
                f"the source is not repeatable: `{name}` differs by {_shown(found, a)} between "
                "two runs on the same input",
                hint="remove what is random in it, dropout for example",
            )
    return scales


class _Gates:
    """The two models to compare, and how close they must be at which scale of each output."""

    def __init__(
        self, served: Runner, source: Runner, scales: Mapping[str, float], tolerance: float
    ) -> None:
        self.served = served
        self.source = source
        self.scales = scales
        self.tolerance = tolerance

    def check_parity(self, example: Example, *, batched: bool) -> Evidence:
        worst = 0.0
        if batched:
            for count in BATCHES:
                worst = max(worst, self._compare(example.rows(count), f"a batch of {count}"))
                self._check_rows(example.rows(count), count)
        else:
            worst = self._compare(example.arrays, "the example inputs")
        sizes = [example.sizes]
        for other in filter(None, map(example.resized, FACTORS)):
            arrays = other.rows(2) if batched else other.arrays
            if self._source_takes(arrays):
                worst = max(worst, self._compare(arrays, f"sizes {other.sizes}"))
                sizes.append(other.sizes)
        return {
            "gate": "parity",
            "max_difference": rounded(worst),
            "limit": self.tolerance,
            **({"batches": list(BATCHES)} if batched else {}),
            **({"sizes": sizes} if example.sizes else {}),
        }

    def check_batch_law(self, example: Example) -> Evidence:
        joined = self.served(example.rows(max(BATCHES)))
        worst = 0.0
        for count in range(1, max(BATCHES)):
            for part, start in self._parts(example, count):
                for name, whole, piece in zip(self.scales, joined, part, strict=True):
                    rows = whole[start : start + count]
                    found = difference(piece, rows, self.scales[name])
                    if found > self.tolerance:
                        raise Refused(
                            f"rows change with their batch: `{name}` differs by "
                            f"{_shown(found, whole)} between batches of {count} and {len(whole)}, "
                            f"the limit is {self.tolerance:.2g}",
                            hint=UNBATCHED_HINT,
                        )
                    worst = max(worst, found)
        return {
            "gate": "batch law",
            "batches": list(BATCHES),
            "max_difference": rounded(worst),
            "limit": self.tolerance,
        }

    def _parts(self, example: Example, count: int) -> Iterator[tuple[Sequence[Array], int]]:
        """Answers to each run of `count` rows out of the largest batch, with where it starts."""
        rows = example.rows(max(BATCHES))
        for start in range(max(BATCHES) - count + 1):
            part = {name: array[start : start + count] for name, array in rows.items()}
            yield self.served(part), start

    def _compare(self, arrays: Mapping[str, Array], what: str) -> float:
        """The largest difference between source and served file on these inputs."""
        try:
            wanted = self.source(arrays)
        except ModelFails as error:
            raise Refused(f"the source fails with {what}: {error}", hint=UNBATCHED_HINT) from error
        try:
            given = self.served(arrays)
        except ModelFails as error:
            raise Refused(f"the exported file fails with {what}: {error}") from error
        worst = 0.0
        for name, got, want in zip(self.scales, given, wanted, strict=True):
            if got.shape != want.shape:
                raise Refused(
                    f"with {what} the exported `{name}` has shape {list(got.shape)}, the "
                    f"source's {list(want.shape)}"
                )
            worst = max(worst, found := difference(got, want, self.scales[name]))
            if found > self.tolerance:
                raise Refused(
                    f"with {what} the exported `{name}` differs from its source by "
                    f"{_shown(found, want)}, the limit is {self.tolerance:.2g}",
                    hint="look for what the exporter cannot express, or set `verify: {tolerance: "
                    "...}` if the model can live with it",
                )
        return worst

    def _check_rows(self, arrays: Mapping[str, Array], count: int) -> None:
        for name, output in zip(self.scales, self.served(arrays), strict=True):
            if output.shape[:1] != (count,):
                raise Refused(
                    f"output `{name}` has shape {list(output.shape)} for a batch of {count}: its "
                    "first axis is not the batch",
                    hint=UNBATCHED_HINT,
                )

    def _source_takes(self, arrays: Mapping[str, Array]) -> bool:
        """A length that the source itself refuses (not a multiple of 32, say) proves nothing."""
        try:
            self.source(arrays)
        except ModelFails:
            return False
        return True


def difference(got: Array, want: Array, scale: float) -> float:
    """Largest difference relative to `scale`.

    NaN equals NaN and infinities equal themselves. For what is not a float it is the share of
    elements that differ. Arrays of different shapes differ infinitely.
    """
    if got.shape != want.shape:
        return float("inf")
    if not got.size:
        return 0.0
    if want.dtype.kind != "f":
        return float(np.mean(got != want))
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale


def scale_of(array: Array) -> float:
    """The largest finite absolute value, but at least SMALLEST_SCALE; 1 for no floats."""
    if array.dtype.kind != "f":
        return 1.0
    values = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(np.max(values, initial=SMALLEST_SCALE))


def _shown(found: float, array: Array) -> str:
    return f"{found:.2g} of its scale" if array.dtype.kind == "f" else f"{found:.0%} of its values"


def rounded(value: float) -> float:
    """Two digits: more would only be noise in a committed file."""
    return float(f"{value:.1e}")
