"""Small ONNX models with Triton configs: made here, no weights needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Shape = Sequence[int | str | None]
Ports = Mapping[str, tuple[str, Shape]]
"""name -> (ONNX element type, shape with the batch axis)."""

DEFAULTS = {"platform": "onnxruntime_onnx", "backend": "onnxruntime"}


def onnx_model(
    inputs: Ports,
    outputs: Ports,
    nodes: Sequence[tuple[str, list[str], list[str], dict[str, Any]]],
    constants: Mapping[str, Any] = {},
) -> bytes:
    """Nodes are (operator, inputs, outputs, attributes); constants are numpy arrays by name."""
    from onnx import TensorProto, helper, numpy_helper

    def ports(named: Ports) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
            for name, (kind, shape) in named.items()
        ]

    graph = helper.make_graph(
        [helper.make_node(kind, sources, sinks, **more) for kind, sources, sinks, more in nodes],
        "sample",
        ports(inputs),
        ports(outputs),
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def identity(kind: str = "FLOAT", shape: Shape = ("N", 4)) -> bytes:
    return onnx_model({"x": (kind, shape)}, {"y": (kind, shape)}, [("Identity", ["x"], ["y"], {})])


def port(name: str, kind: str, *dims: int, **more: Any) -> dict[str, Any]:
    """An entry of `input` or `output`; `more` may have reshape, optional, allow_ragged_batch."""
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims), **more}


X = port("x", "FP32", 4)
Y = port("y", "FP32", 4)


@dataclass(frozen=True)
class Sample:
    """A model folder: what makes the file, and the config as Triton gives it to backends."""

    name: str
    graph: Callable[[], bytes] | None = identity
    max_batch: int = 8
    inputs: Sequence[dict[str, Any]] = (X,)
    outputs: Sequence[dict[str, Any]] = (Y,)
    instances: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        group = {"name": f"{self.name}_0", "kind": "KIND_CPU", "count": self.instances}
        return {
            "name": self.name,
            **DEFAULTS,
            "max_batch_size": self.max_batch,
            "input": list(self.inputs),
            "output": list(self.outputs),
            "instance_group": [group],
            "default_model_filename": "model.onnx",
            **self.more,
        }

    def write(self, repository: Path) -> None:
        version = repository / self.name / "1"
        version.mkdir(parents=True)
        (repository / self.name / "config.pbtxt").write_text(pbtxt(self.config()))
        if self.graph is not None:
            file = version / self.config()["default_model_filename"]
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(self.graph())


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


def pbtxt(message: Mapping[str, Any]) -> str:
    """Protobuf's text of a config in Triton's JSON form."""
    lines = []
    for key, value in message.items():
        if key == "parameters":
            lines += [
                f"{key} {{ key: {_scalar(name)} value {{ {pbtxt(entry)} }} }}"
                for name, entry in value.items()
            ]
        else:
            lines += [
                f"{key} {{ {pbtxt(item)} }}"
                if isinstance(item, Mapping)
                else f"{key}: {_scalar(item)}"
                for item in (value if isinstance(value, (list, tuple)) else [value])
            ]
    return "\n".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or re.fullmatch("(TYPE|KIND|CONTROL|BATCH)_[A-Z0-9_]+", str(value)):
        return str(value)
    return '"' + str(value).replace('"', '\\"') + '"'


def custom(
    inputs: Ports, outputs: Ports, *nodes: tuple[str, list[str], list[str], dict[str, Any]]
) -> Callable[[], bytes]:
    return partial(onnx_model, inputs, outputs, nodes)


# ---------------------------------------------------------------- graphs


def controlled(size: int) -> Callable[[], bytes]:
    """A model with a control input `START` of `size` numbers a row beside `x`."""
    return custom(
        {"x": ("FLOAT", ["N", 4]), "START": ("INT32", ["N", size])},
        {"y": ("FLOAT", ["N", 4]), "seen": ("INT32", ["N", size])},
        ("Identity", ["x"], ["y"], {}),
        ("Identity", ["START"], ["seen"], {}),
    )


def sequence(values: str, name: str = "START") -> dict[str, Any]:
    """`sequence_batching` with the start control as int32, fp32 or bool."""
    control = {"kind": "CONTROL_SEQUENCE_START", f"{values}_false_true": [0, 1]}
    return {"sequence_batching": {"control_input": [{"name": name, "control": [control]}]}}


def mlp() -> bytes:
    draw = np.random.default_rng(0)
    return onnx_model(
        {"x": ("FLOAT", ["N", 64])},
        {"y": ("FLOAT", ["N", 8])},
        [
            ("Gemm", ["x", "w1", "b1"], ["h"], {}),
            ("Tanh", ["h"], ["a"], {}),
            ("Gemm", ["a", "w2", "b2"], ["y"], {}),
        ],
        {
            name: draw.standard_normal(shape).astype(np.float32)
            for name, shape in {"w1": (64, 32), "b1": (32,), "w2": (32, 8), "b2": (8,)}.items()
        },
    )


def rows_together() -> bytes:
    """Every row answers how many rows ran with it."""
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", ["N", 4])},
        [
            ("Mul", ["x", "zero"], ["zeros"], {}),
            ("Add", ["zeros", "one"], ["ones"], {}),
            ("ReduceSum", ["ones", "rows"], ["total"], {"keepdims": 1}),
            ("Add", ["zeros", "total"], ["y"], {}),
        ],
        {"zero": np.float32([0]), "one": np.float32([1]), "rows": np.int64([0])},
    )


def lookup() -> bytes:
    """y = table[x]: an index of 3 or more fails the whole run."""
    return onnx_model(
        {"x": ("INT64", ["N", 1])},
        {"y": ("FLOAT", ["N", 1])},
        [("Gather", ["table", "x"], ["y"], {})],
        {"table": np.arange(3, dtype=np.float32)},
    )


def first_row() -> bytes:
    """One row whatever comes in, which breaks the batch law."""
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", ["M", 4])},
        [("Slice", ["x", "begin", "end"], ["y"], {})],
        {"begin": np.int64([0]), "end": np.int64([1])},
    )


def doubled() -> bytes:
    """Twice the rows that come in."""
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", ["M", 4])},
        [("Concat", ["x", "x"], ["y"], {"axis": 0})],
    )


def scaled() -> bytes:
    """y = x * s with a scalar s, and the scalar total of y."""
    return onnx_model(
        {"x": ("FLOAT", ["N", 4]), "s": ("FLOAT", [])},
        {"y": ("FLOAT", ["N", 4]), "total": ("FLOAT", [])},
        [("Mul", ["x", "s"], ["y"], {}), ("ReduceSum", ["y"], ["total"], {"keepdims": 0})],
    )


def overridable() -> bytes:
    """y = x * scale, where scale is 2 unless it is sent."""
    return onnx_model(
        {"x": ("FLOAT", [2, 4]), "scale": ("FLOAT", [1])},
        {"y": ("FLOAT", [2, 4])},
        [("Mul", ["x", "scale"], ["y"], {})],
        {"scale": np.float32([2])},
    )


def pair() -> bytes:
    """Two inputs that the model itself says have one length."""
    return onnx_model(
        {"ids": ("INT64", ["batch", "seq"]), "mask": ("INT64", ["batch", "seq"])},
        {"y": ("INT64", ["batch", "seq"])},
        [("Add", ["ids", "mask"], ["y"], {})],
    )


TYPES = {
    "BOOL": "BOOL",
    **{f"{sign}INT{size}": f"{sign}INT{size}" for sign in ("", "U") for size in (8, 16, 32, 64)},
    "FP16": "FLOAT16",
    "FP32": "FLOAT",
    "FP64": "DOUBLE",
    "STRING": "STRING",
}
"""Triton's word -> ONNX's."""


def all_types() -> bytes:
    return onnx_model(
        {f"in_{word}": (kind, ["N", 2]) for word, kind in TYPES.items()},
        {f"out_{word}": (kind, ["N", 2]) for word, kind in TYPES.items()},
        [("Identity", [f"in_{word}"], [f"out_{word}"], {}) for word in TYPES],
    )


# ---------------------------------------------------------------- models


def batching(delay_us: int) -> dict[str, Any]:
    """A queue that waits for a full batch, `delay_us` at most."""
    return {"dynamic_batching": {"max_queue_delay_microseconds": delay_us}}


MLP = Sample(
    "mlp",
    mlp,
    max_batch=32,
    inputs=[port("x", "FP32", 64)],
    outputs=[port("y", "FP32", 8)],
    more=batching(2_000),
)
TOGETHER = Sample("together", rows_together, max_batch=6, more=batching(2_000_000))
LOOKUP = Sample(
    "lookup",
    lookup,
    max_batch=3,
    inputs=[port("x", "INT64", 1)],
    outputs=[port("y", "FP32", 1)],
    more=batching(2_000_000),
)
TEXTS = Sample(
    "texts",
    partial(identity, "STRING", ["N", 1]),
    inputs=[port("x", "STRING", 1)],
    outputs=[port("y", "STRING", 1)],
)
SHORT = Sample("short", first_row, max_batch=3, more=batching(2_000_000))
DOUBLED = Sample("doubled", doubled)
SCALED = Sample(
    "scaled",
    scaled,
    inputs=[X, port("s", "FP32", 1, reshape={"shape": []})],
)
TOTAL = replace(
    SCALED, name="total", outputs=[port("total", "FP32", 1, reshape={"shape": []})], max_batch=2
)
OPTIONAL = Sample(
    "optional",
    overridable,
    max_batch=0,
    inputs=[port("x", "FP32", 2, 4), port("scale", "FP32", 1, optional=True)],
    outputs=[port("y", "FP32", 2, 4)],
)
PAIR = Sample(
    "pair",
    pair,
    inputs=[port("ids", "INT64", -1), port("mask", "INT64", -1)],
    outputs=[port("y", "INT64", -1)],
    more=batching(2_000),
)
EVERY_TYPE = Sample(
    "every_type",
    all_types,
    inputs=[port(f"in_{word}", word, 2) for word in TYPES],
    outputs=[port(f"out_{word}", word, 2) for word in TYPES],
)
EMPTY = Sample(
    "empty",
    identity,
    max_batch=0,
    inputs=[port("x", "FP32", -1, 4)],
    outputs=[port("y", "FP32", -1, 4)],
)
CONTROLLED = Sample(
    "controlled",
    controlled(1),
    outputs=[Y, port("seen", "INT32", 1)],
    more=sequence("int32"),
)
TWO = Sample("two", identity, instances=2)
NAMED = (
    Sample("by_platform", more={"backend": ""}),
    Sample("by_backend", more={"platform": ""}),
)
TUNED = Sample(
    "tuned",
    identity,
    instances=2,
    more={
        **parameters(
            intra_op_thread_count="1",
            inter_op_thread_count="1",
            execution_mode="0",
            enable_mem_arena="1",
            enable_mem_pattern="true",
            gpu_mem_limit="nonsense, and not for a CPU",
        ),
        "default_model_filename": "net.onnx",
        "optimization": {
            "graph": {"level": 1},
            "execution_accelerators": {
                "gpu_execution_accelerator": [{"name": "tensorrt"}],
                "cpu_execution_accelerator": [{"name": "openvino"}],
            },
        },
    },
)
