"""The 52 models whose configs Triton's C++ ONNX backend was asked to complete, made here.

Names and signatures are those of `onnx_autocomplete.json` in the data folder beside the checkout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

VARIANTS = (
    "absent",
    "backend_only",
    "mbs0_platform",
    "mbs1_platform",
    "mbs8_only",
    "name_platform",
)
"""The configs that each model was loaded with."""


@dataclass(frozen=True)
class Recorded:
    """What the C++ backend made of one model with one config.

    `text` is the config.pbtxt, None for no file. `config` is the completed one, in Triton's JSON
    form and without what is default; None where the load failed, with `refusal`. `log` has the
    lines about the completion, as (W or I, text); None where they were not recorded.
    """

    name: str
    text: str | None
    config: Mapping[str, Any] | None
    refusal: str | None
    log: tuple[tuple[str, str], ...] | None


def read_recorded(shared: Path) -> dict[tuple[str, str], Recorded]:
    """(model, variant) -> what was recorded, with ONNX Runtime 1.19."""
    data = json.loads((shared / "conformance" / "onnx_autocomplete.json").read_text())
    return {
        (model, variant): _recorded(f"{model}__{variant}", data["variants"][variant], row[variant])
        for model, row in data["models"].items()
        for variant in VARIANTS
    }


def _recorded(name: str, text: str | None, row: Mapping[str, Any]) -> Recorded:
    refusal = re.fullmatch(r".* is at UNAVAILABLE state: (.*);\n", row.get("error", ""), re.DOTALL)
    lines = (re.fullmatch(r'([WI]) "(.*)"', line) for line in row["log"])
    case = Recorded(
        name,
        text.replace("%s", name) if text else None,
        row.get("config"),
        refusal[1] if refusal else None,
        tuple((line[1], line[2]) for line in lines if line),
    )
    if "Could not find an implementation for Cast(21)" not in (case.refusal or ""):
        return case
    # Newer ONNX Runtimes open a model with an INT4 input, and then Triton has no word for it.
    newer = f"Invalid argument: model input 'x' must specify 'data_type' for {name}"
    return replace(case, refusal=newer, log=None)


Shape = Sequence[int | str | None] | None
Ports = Mapping[str, tuple[str, Shape]]
"""name -> (ONNX element type, or `sequence FLOAT` and the like; shape, None for unknown rank)."""

Node = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]

X = {"x": ("FLOAT", ["N", 4])}
Y = {"y": ("FLOAT", ["N", 4])}
COPY: Node = ("Identity", ["x"], ["y"], {})


def _model(
    inputs: Ports,
    outputs: Ports,
    nodes: Sequence[Node] = (COPY,),
    constants: Mapping[str, np.ndarray] = {},
    opset: int = 17,
    ir_version: int = 8,
) -> bytes:
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node(
                kind, sources, sinks, domain="ai.onnx.ml" if kind == "ZipMap" else "", **more
            )
            for kind, sources, sinks, more in nodes
        ],
        "completed",
        [_port(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [_port(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    domains = {"": opset, "ai.onnx.ml": 2}
    opsets = [helper.make_opsetid(name, version) for name, version in domains.items()]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return bytes(made.SerializeToString())


def _port(name: str, kind: str, shape: Shape) -> Any:
    from onnx import TensorProto, helper

    container, _, element = kind.rpartition(" ")
    tensor = helper.make_tensor_type_proto(getattr(TensorProto, element), shape)
    match container:
        case "sequence":
            tensor = helper.make_sequence_type_proto(tensor)
        case "optional":
            tensor = helper.make_optional_type_proto(tensor)
        case "maps":
            by_class = helper.make_map_type_proto(TensorProto.INT64, tensor)
            tensor = helper.make_sequence_type_proto(by_class)
    return helper.make_value_info(name, tensor)


def _copy(kind: str, *shape: int | str | None, **more: int) -> Callable[[], bytes]:
    """x -> y of one type and shape."""
    return partial(_model, {"x": (kind, shape)}, {"y": (kind, shape)}, **more)


def _copies(*names: tuple[str, str]) -> list[Node]:
    return [("Identity", [source], [sink], {}) for source, sink in names]


def _cast(source: str, sink: str, kind: str) -> Node:
    """The numbers of ONNX's element types that are cast to."""
    return ("Cast", [source], [sink], {"to": {"FLOAT": 1, "BFLOAT16": 16}[kind]})


def _floats(*names: str, shape: Shape = ("N", 4)) -> dict[str, tuple[str, Shape]]:
    return dict.fromkeys(names, ("FLOAT", shape))


ALL_TYPES = {
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "f16": "FLOAT16",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "b": "BOOL",
    "s": "STRING",
}
IMAGE = ["N", 8, 8, 3]
TOKENS = ["batch_size", "sequence_length"]

MODELS: dict[str, Callable[[], bytes]] = {
    # the first axis
    "dyn": _copy("FLOAT", "N", 4),
    "fixed1": _copy("FLOAT", 1, 4),
    "fixed4": _copy("FLOAT", 4, 4),
    "rank0": _copy("FLOAT"),
    "rank1dyn": _copy("FLOAT", "N"),
    "rank1dynN": _copy("FLOAT", None),
    "rank1fix": _copy("FLOAT", 4),
    "rank5": _copy("FLOAT", "N", 1, 2, 3, 4),
    "rank5fix": _copy("FLOAT", 1, 1, 2, 3, 4),
    "samesym": _copy("FLOAT", "N", "N"),
    "sym3": _copy("FLOAT", "batch", "seq", "hidden"),
    "zerodim": _copy("FLOAT", "N", 0),
    "zerodim0": _copy("FLOAT", 0, 4),
    "negdim": _copy("FLOAT", -1, 4),
    "negdim2": _copy("FLOAT", "N", -1),
    "dim0names": partial(
        _model,
        _floats("x", shape=["B", 4]) | _floats("w", shape=["N", 3]),
        _floats("y", shape=["B", 4]) | _floats("z", shape=["N", 3]),
        _copies(("x", "y"), ("w", "z")),
    ),
    "infix": partial(_model, X | _floats("w", shape=[1, 4]), Y, [("Add", ["x", "w"], ["y"], {})]),
    "outfix": partial(
        _model,
        X,
        Y | _floats("m", shape=[1, 4]),
        [COPY, ("ReduceMean", ["x"], ["m"], {"axes": [0], "keepdims": 1})],
    ),
    # types
    "alltypes": partial(
        _model,
        {f"in_{word}": (kind, ["N", 2]) for word, kind in ALL_TYPES.items()},
        {f"out_{word}": (kind, ["N", 2]) for word, kind in ALL_TYPES.items()},
        _copies(*((f"in_{word}", f"out_{word}") for word in ALL_TYPES)),
    ),
    "bf16": _copy("BFLOAT16", "N", 4),
    "bf16mid": partial(_model, X, Y, [_cast("x", "m", "BFLOAT16"), _cast("m", "y", "FLOAT")]),
    "boolm": partial(
        _model,
        {"x": ("BOOL", ["N", 4])},
        {"y": ("BOOL", ["N", 4])},
        [("Not", ["x"], ["y"], {})],
    ),
    "c64": _copy("COMPLEX64", "N", 4),
    "fp16": _copy("FLOAT16", "N", 4),
    "fp8": _copy("FLOAT8E4M3FN", "N", 4, opset=19, ir_version=9),
    "i64": _copy("INT64", "batch", 8),
    "int4": partial(
        _model, {"x": ("INT4", ["N", 4])}, Y, [_cast("x", "y", "FLOAT")], opset=21, ir_version=10
    ),
    "str1": _copy("STRING", "N"),
    "str2": _copy("STRING", "N", 1),
    "strS": _copy("STRING", "N", "S"),
    "u8img": partial(
        _model,
        {"image": ("UINT8", IMAGE)},
        {"f": ("FLOAT", IMAGE)},
        [_cast("image", "f", "FLOAT")],
    ),
    # what is no tensor
    "mapout": partial(
        _model,
        X,
        Y | {"p": ("maps FLOAT", None)},
        [COPY, ("ZipMap", ["x"], ["p"], {"classlabels_int64s": [0, 1, 2, 3]})],
    ),
    "optout": partial(
        _model, X, {"o": ("optional FLOAT", ["N", 4])}, [("Optional", ["x"], ["o"], {})]
    ),
    "seqin": partial(
        _model,
        {"s": ("sequence FLOAT", None)},
        Y,
        [("ConcatFromSequence", ["s"], ["y"], {"axis": 0})],
    ),
    "seqout": partial(
        _model,
        X,
        {"s": ("sequence FLOAT", None)},
        [("SplitToSequence", ["x"], ["s"], {"axis": 0, "keepdims": 1})],
    ),
    # scalars, unknown ranks, shapes that only inference knows
    "contradict": partial(
        _model,
        X,
        _floats("y", shape=["N", 2, 2]),
        [("Reshape", ["x", "s"], ["y"], {})],
        {"s": np.array([1, 2, 2], np.int64)},
    ),
    "nonzero": partial(
        _model,
        X,
        {"y": ("INT64", ["K", 2])},
        [("NonZero", ["x"], ["nz"], {}), ("Transpose", ["nz"], ["y"], {"perm": [1, 0]})],
    ),
    "norank": partial(
        _model,
        X | {"shape": ("INT64", ["K"])},
        _floats("y", shape=None),
        [("Reshape", ["x", "shape"], ["y"], {})],
    ),
    "norank1": partial(
        _model,
        X | {"nn": ("INT64", [1])},
        _floats("y", shape=None),
        [
            ("NonZero", ["x"], ["nz"], {}),
            ("Shape", ["x"], ["sh"], {}),
            ("Slice", ["sh", "z", "nn"], ["s2"], {}),
            ("Reshape", ["x", "s2"], ["y"], {}),
        ],
        {"z": np.array([0], np.int64)},
    ),
    "scalarin": partial(_model, X | _floats("s", shape=[]), Y, [("Mul", ["x", "s"], ["y"], {})]),
    "scalarout": partial(
        _model,
        X,
        Y | _floats("total", shape=[]),
        [COPY, ("ReduceSum", ["x"], ["total"], {"keepdims": 0})],
    ),
    # which inputs and outputs there are, and their order
    "bertlike": partial(
        _model,
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("INT64", TOKENS)),
        {"last_hidden_state": ("INT64", TOKENS), "pooler_output": ("INT64", TOKENS[:1])},
        [
            ("Add", ["input_ids", "attention_mask"], ["t"], {}),
            ("Add", ["t", "token_type_ids"], ["last_hidden_state"], {}),
            ("ReduceSum", ["t", "ax"], ["pooler_output"], {"keepdims": 0}),
        ],
        {"ax": np.array([1], np.int64)},
    ),
    "bigout": partial(
        _model,
        _floats("x", shape=["N", 1]),
        _floats("y", shape=["N", "K"]),
        [("Expand", ["x", "s"], ["y"], {})],
        {"s": np.array([1, 4 * 1024 * 1024], np.int64)},
    ),
    "initout": partial(
        _model, X, Y | _floats("c", shape=[2]), [COPY], {"c": np.array([1, 2], np.float32)}
    ),
    "names": partial(
        _model,
        _floats("serving_default_input:0", "input/x y"),
        _floats("StatefulPartitionedCall:0", "out/é"),
        _copies(("serving_default_input:0", "StatefulPartitionedCall:0"), ("input/x y", "out/é")),
    ),
    "noinput": partial(
        _model,
        {},
        _floats("y", shape=[2]),
        _copies(("c", "y")),
        {"c": np.array([1, 2], np.float32)},
    ),
    "order": partial(
        _model,
        _floats("x", "m_in", "a_in", shape=["N", 2]),
        _floats("zeta", "alpha", "mid", shape=["N", 2]),
        [
            *_copies(("x", "zeta")),
            ("Add", ["a_in", "x"], ["alpha"], {}),
            ("Mul", ["x", "m_in"], ["mid"], {}),
        ],
    ),
    "overridable": partial(
        _model,
        X | _floats("scale", shape=[1]),
        Y,
        [("Mul", ["x", "scale"], ["y"], {})],
        {"scale": np.array([2], np.float32)},
    ),
    "overridable_fix": partial(
        _model,
        _floats("x", shape=[2, 4]) | _floats("scale", shape=[1]),
        _floats("y", shape=[2, 4]),
        [("Mul", ["x", "scale"], ["y"], {})],
        {"scale": np.array([2], np.float32)},
    ),
    "passthru": partial(_model, X, X | Y),
    "ragged": partial(
        _model,
        _floats("x", shape=["K"]),
        _floats("y", shape=["K"]),
        [("Mul", ["x", "two"], ["y"], {})],
        {"two": np.array([2], np.float32)},
    ),
    "unused": partial(_model, X | _floats("u"), Y),
}
"""name -> what makes the file."""
