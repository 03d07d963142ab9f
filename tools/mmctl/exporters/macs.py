"""How much a model multiplies: counted from one profiled run of ONNX Runtime."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mmctl.errors import InputError
from mmctl.exporters.onnx_file import first_line
from mmctl.tensors import Array

MEDIUM_GFLOPS = 10
HEAVY_GFLOPS = 100

Shape = Sequence[int]
Shapes = Sequence[Shape]


@dataclass(frozen=True, slots=True)
class Macs:
    """Multiplications with an addition each, in one run, by ONNX operator."""

    by_operator: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.by_operator.values())

    @property
    def convolutions(self) -> int:
        return sum(self.by_operator.get(operator, 0) for operator in CONVOLUTIONS)

    @property
    def gflops(self) -> float:
        """Floating point operations, 2 for each MAC, in 10^9."""
        return 2 * self.total / 1e9

    @property
    def size(self) -> Literal["light", "medium", "heavy"]:
        """How much a request costs: meaningful for a batch of one row."""
        if self.gflops < MEDIUM_GFLOPS:
            return "light"
        return "medium" if self.gflops <= HEAVY_GFLOPS else "heavy"


def count_macs(path: Path, inputs: Mapping[str, Array]) -> Macs:
    """MACs of one run with these inputs. Raises InputError when it cannot run with them."""
    counted: Counter[str] = Counter()
    for event in _profiled_nodes(path, inputs):
        operator = event["op_name"]
        if count := RULES.get(operator):
            counted[operator] += count(_shapes(event, "input"), _shapes(event, "output"))
    return Macs(dict(+counted))


def _profiled_nodes(path: Path, inputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # As the file has them: fused operators would have no rule, packed weights no shape.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="mmctl-macs-") as folder:
        options.profile_file_prefix = f"{folder}/run"
        try:
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
            session.run(None, dict(inputs))
        except Exception as error:  # its exceptions have no common base
            raise InputError(f"{path.name} cannot be run to count: {first_line(error)}") from error
        events = json.loads(Path(session.end_profiling()).read_text())
    return [
        event["args"]
        for event in events
        if event.get("cat") == "Node" and "output_type_shape" in event.get("args", {})
    ]


def _shapes(event: Mapping[str, Any], side: str) -> Shapes:
    """The profile has [{"float": [1, 3]}, ...]."""
    return [next(iter(entry.values())) for entry in event[f"{side}_type_shape"]]


def _convolution(weight: int) -> Callable[[Shapes, Shapes], int]:
    """Every number of the output is a sum over one filter; `weight` is the place of the filters."""
    return lambda ins, outs: math.prod(outs[0]) * math.prod(ins[weight][1:])


def _transposed(ins: Shapes, _outs: Shapes) -> int:
    return math.prod(ins[0]) * math.prod(ins[1][1:])


def _product(ins: Shapes, outs: Shapes) -> int:
    return math.prod(outs[0]) * ins[0][-1]


def _gemm(ins: Shapes, outs: Shapes) -> int:
    """A may be transposed; its other side is the sum's."""
    return math.prod(outs[0]) * (math.prod(ins[0]) // max(1, outs[0][0]))


def _recurrent(ins: Shapes, _outs: Shapes) -> int:
    steps, rows = ins[0][:2]
    return steps * rows * (math.prod(ins[1]) + math.prod(ins[2]))


def _attention(ins: Shapes, outs: Shapes) -> int:
    """ONNX's operator: query, key, value of [batch, heads, length, width], or of
    [batch, length, heads * width]. Microsoft's of the same name has a weight of rank 2 as second.
    """
    query, key = ins[:2]
    if len(key) == 2:
        batch, length, _width = query
        hidden = outs[0][-1]
        return batch * length * (math.prod(key) + 2 * length * hidden)
    # Every query meets every key, over the whole width; then as many numbers of output are sums
    # over all keys. Query and output have the query's heads, whatever heads the keys share.
    keys = key[-2]
    return keys * (math.prod(query) + math.prod(outs[0]))


CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose")

RULES: Mapping[str, Callable[[Shapes, Shapes], int]] = {
    "Conv": _convolution(weight=1),
    "ConvInteger": _convolution(weight=1),
    "QLinearConv": _convolution(weight=3),
    "ConvTranspose": _transposed,
    "MatMul": _product,
    "MatMulInteger": _product,
    "MatMulNBits": _product,
    "QLinearMatMul": _product,
    "DynamicQuantizeMatMul": _product,
    "FusedMatMul": _product,
    "Gemm": _gemm,
    "QGemm": _gemm,
    "Attention": _attention,
    "MultiHeadAttention": _attention,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "DynamicQuantizeLSTM": _recurrent,
}
"""By operator: input shapes and output shapes to MACs."""
