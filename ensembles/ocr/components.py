"""Connected parts of a mask, as the runs of their rows: numpy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Runs:
    """Neighbouring pixels of one row, in reading order: row, first column, last column."""

    row: Ints
    first: Ints
    last: Ints

    def __getitem__(self, which: Ints) -> Runs:
        return Runs(self.row[which], self.first[which], self.last[which])

    def __len__(self) -> int:
        return len(self.row)


def connected_parts(mask: npt.NDArray[np.bool_], least_side: int) -> Iterator[Runs]:
    """Each part of [height, width] that hangs together, also by a corner (8 neighbours).

    Parts with fewer rows or columns than `least_side` are left out: most are noise.
    """
    runs = runs_of(mask)
    if not len(runs):
        return
    labels = _labels(runs, mask.shape[1])
    order = np.argsort(labels, kind="stable")
    runs, labels = runs[order], labels[order]
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    ends = np.append(starts[1:], len(runs))
    height = runs.row[ends - 1] - runs.row[starts] + 1
    right, left = np.maximum.reduceat(runs.last, starts), np.minimum.reduceat(runs.first, starts)
    large = np.minimum(height, right - left + 1) >= least_side
    for start, end in zip(starts[large], ends[large], strict=True):
        yield runs[np.arange(start, end)]


def runs_of(mask: npt.NDArray[np.bool_]) -> Runs:
    width = mask.shape[1] + 1  # a column of nothing ends the runs of a row
    flat = np.pad(mask, ((0, 0), (0, 1))).ravel()
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    starts, ends = changes[::2], changes[1::2]
    return Runs(starts // width, starts % width, ends % width - 1)


def _labels(runs: Runs, width: int) -> Ints:
    """One number for all runs of a part: the least of them."""
    upper, lower = _touching(runs, width)
    label = np.arange(len(runs))
    while not np.array_equal(label[upper], label[lower]):
        least = np.minimum(label[upper], label[lower])
        np.minimum.at(label, label[upper], least)
        np.minimum.at(label, label[lower], least)
        label = label[label]
    return label


def _touching(runs: Runs, width: int) -> tuple[Ints, Ints]:
    """Pairs of runs, by number, that touch from one row to the next."""
    stride = width + 2  # more than any column plus one: rows never mix
    below = (runs.row + 1) * stride
    first = np.searchsorted(runs.row * stride + runs.last, below + runs.first - 1)
    after = np.searchsorted(runs.row * stride + runs.first, below + runs.last + 1, side="right")
    counts = after - first
    upper = np.repeat(np.arange(len(runs)), counts)
    steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return upper, np.repeat(first, counts) + steps
