"""Conv, MatMul and Gemm as one thing: filters, each a row of numbers that inputs are multiplied
with and summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmctl.exporters.precision.prepare import attribute_of

KINDS = ("Conv", "MatMul", "Gemm")

ROWS = 2048
"""Most places that one batch tells about; others are like them."""
LARGEST = 16_000_000
"""Numbers that these places may hold together, so that memory stays small."""

Numbers = NDArray[Any]


def has_filters(node: Any) -> bool:
    """Where inputs are padded by a rule, or turned, they would have to be counted otherwise."""
    return (
        node.op_type in KINDS
        and not attribute_of(node, "transA", 0)
        and attribute_of(node, "auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    )


@dataclass(frozen=True, slots=True)
class Filters:
    """Of a node that has some, and the shape of its weight."""

    node: Any
    shape: tuple[int, ...]

    @property
    def groups(self) -> int:
        return int(attribute_of(self.node, "group", 1))

    @property
    def inputs_first(self) -> bool:
        """Whether the weight is [inputs, filters], and not [filters, inputs...]."""
        return self.node.op_type == "MatMul" or (
            self.node.op_type == "Gemm" and not attribute_of(self.node, "transB", 0)
        )

    def rows(self, weight: Numbers) -> Numbers:
        """[groups, filters of a group, inputs of a filter]"""
        rows = weight.T if self.inputs_first else weight
        return rows.reshape(self.groups, len(rows) // self.groups, -1)

    def weight(self, rows: Numbers) -> Numbers:
        """The reverse of `rows`."""
        flat = rows.reshape(rows.shape[0] * rows.shape[1], -1)
        return np.ascontiguousarray((flat.T if self.inputs_first else flat).reshape(self.shape))

    def places(self, given: Numbers, random: np.random.Generator) -> Numbers:
        """What filters are multiplied with, at some places of the node's input: [groups, places,
        inputs of a filter].
        """
        if self.node.op_type != "Conv":
            flat = given.reshape(1, -1, given.shape[-1])
            return flat[:, random.permutation(flat.shape[1])[:ROWS]]
        windows = self._windows(given)
        most = min(ROWS, max(1, LARGEST // (windows.shape[1] * math.prod(self.shape[2:]))))
        over = (windows.shape[0], *windows.shape[2 : len(self.shape)])
        image, *place = np.unravel_index(random.permutation(math.prod(over))[:most], over)
        index: Any = (image, slice(None), *place)
        seen: Numbers = windows[index].reshape(len(image), self.groups, -1)
        return seen.transpose(1, 0, 2)

    def _windows(self, given: Numbers) -> Numbers:
        """[rows, channels, places..., kernel...] of what a convolution sees."""
        kernel = self.shape[2:]
        rank = len(kernel)
        pads = attribute_of(self.node, "pads", [0] * 2 * rank)
        strides = attribute_of(self.node, "strides", [1] * rank)
        dilations = attribute_of(self.node, "dilations", [1] * rank)
        padded = np.pad(given, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
        spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
        axes: Any = tuple(range(2, 2 + rank))
        seen = np.lib.stride_tricks.sliding_window_view(padded, tuple(spans), axis=axes)
        steps: Any = [slice(None, None, step) for step in (1, 1, *strides, *dilations)]
        windows: Numbers = seen[tuple(steps)]
        return windows
