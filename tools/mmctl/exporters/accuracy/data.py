"""Samples as values: rows with labels, joined, cut and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.precision.base import Batch
from mmctl.tensors import Array

Labels = Mapping[str, Array]
"""By output; under "" where the data names none."""
OwnMetric = Callable[[Mapping[str, Array], Any], Any]
"""The user's: all outputs of a batch and its labels (None without) -> one score a row."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs as they were given, rows in front; labels of the same rows, or none."""

    inputs: Batch
    labels: Labels

    @property
    def rows(self) -> int:
        """Of a model with a batch axis."""
        return len(next(iter(self.inputs.values())))

    def cut(self, start: int, stop: int) -> Sample:
        return Sample(
            {name: array[start:stop] for name, array in self.inputs.items()},
            {name: array[start:stop] for name, array in self.labels.items()},
        )

    def repeated(self, rows: int) -> Sample:
        """With so many rows: the first ones, or all of them in turn."""
        index = [row % self.rows for row in range(rows)]
        return Sample({name: array[index] for name, array in self.inputs.items()}, {})

    def check_rows(self, where: str) -> None:
        """Raises InputError unless all arrays, labels too, have as many rows, at least one."""
        named = [*self.inputs.items(), *((f"labels {name}", a) for name, a in self.labels.items())]
        counts = {name: len(array) if array.ndim else 0 for name, array in named}
        if len(set(counts.values())) > 1 or not all(counts.values()):
            shown = ", ".join(f"`{name.strip()}` {count}" for name, count in counts.items())
            raise InputError(f"{where} has no common number of rows: {shown}")


def refuse_shared(calibration: Sequence[Sample], held_out: Sequence[Sample]) -> None:
    """Raises InputError when a sample is in both: nothing would be proven on it."""
    known = set(_digests(calibration))
    found = list(_digests(held_out))
    if shared := sum(digest in known for digest in found):
        raise InputError(
            f"{shared} of {len(found)} held-out samples are calibration samples too",
            hint="let `verify.calibration` and `verify.data` yield different samples",
        )


def _digests(samples: Sequence[Sample]) -> Iterator[bytes]:
    for sample in samples:
        names = sorted(sample.inputs)
        for row in range(max((len(a) for a in sample.inputs.values() if a.ndim), default=1)):
            digest = hashlib.sha256()
            for name in names:
                array = sample.inputs[name]
                part = array[row % len(array)] if array.ndim and len(array) else array
                digest.update(f"{name}{part.shape}".encode())
                digest.update(
                    repr(part.tolist()).encode() if part.dtype == object else part.tobytes()
                )
            yield digest.digest()


def blocks_of(samples: Sequence[Sample], *, batched: bool) -> list[Sample]:
    """Samples of equal shapes joined, in order; without a batch axis they stay as they are."""
    if not batched:
        return list(samples)
    groups: dict[object, list[Sample]] = {}
    for sample in samples:
        shapes = [(name, array.shape[1:]) for name, array in sorted(sample.inputs.items())]
        groups.setdefault((tuple(shapes), tuple(sorted(sample.labels))), []).append(sample)
    return [
        Sample(_joined([s.inputs for s in group]), _joined([s.labels for s in group]))
        for group in groups.values()
    ]


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
