"""Samples as requests of one row each, and as requests of several rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmctl.client.requests import arrays_for
from mmctl.client.samples import Sample, naming
from mmctl.tensors import Array, Signature

Inputs = Mapping[str, Array]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """`rows` are numbers of single rows, whose answers the answer to this request must be."""

    inputs: Inputs
    rows: tuple[int, ...]


def single_rows(
    pipeline: str, samples: Sequence[Sample], signature: Signature
) -> tuple[Request, ...]:
    """Every row of every sample alone. Without a batch axis a sample is one row."""
    found: list[Inputs] = []
    for sample in samples:
        with naming(sample):
            arrays = arrays_for(pipeline, sample.inputs, signature)
        if not signature.max_batch:
            found.append(arrays)
            continue
        count = len(next(iter(arrays.values())))
        found += [{n: array[i : i + 1] for n, array in arrays.items()} for i in range(count)]
    return tuple(Request(inputs, (number,)) for number, inputs in enumerate(found))


def joined(singles: Sequence[Request], max_batch: int) -> tuple[Request, ...]:
    """Rows of equal shapes together, two or more and as many as go; none without a batch axis."""
    if max_batch < 2:
        return ()
    groups: dict[Shapes, list[Request]] = {}
    for request in singles:
        groups.setdefault(_shapes(request.inputs), []).append(request)
    batches = [
        group[start : start + max_batch]
        for group in groups.values()
        for start in range(0, len(group), max_batch)
    ]
    return tuple(_join(batch) for batch in batches if len(batch) > 1)


def _join(batch: Sequence[Request]) -> Request:
    names = batch[0].inputs
    inputs = {name: np.concatenate([r.inputs[name] for r in batch]) for name in names}
    return Request(inputs, tuple(_flat(request.rows for request in batch)))


def _shapes(inputs: Inputs) -> Shapes:
    return tuple(array.shape[1:] for array in inputs.values())


def _flat(parts: Iterable[tuple[int, ...]]) -> Iterable[int]:
    return (number for part in parts for number in part)
