"""ONNX files that are read without ONNX Runtime: shapes to infer, batches baked in, other files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx_samples import identity, onnx_model

X = {"x": ("FLOAT", ["N", 4])}


def changed(content: bytes, change: Callable[[Any], object]) -> bytes:
    from onnx import load_model_from_string

    model = load_model_from_string(content)
    change(model)
    return bytes(model.SerializeToString())


def reshaped(*shape: int, stated: list[int | str] | None = None) -> bytes:
    """x[N,4] -> y by a constant shape; the file says that y is `stated`."""
    return onnx_model(
        X,
        {"y": ("FLOAT", stated)},  # type: ignore[dict-item]
        [("Reshape", ["x", "shape"], ["y"], {})],
        {"shape": np.array(shape, np.int64)},
    )


def computed(stated: list[int | str]) -> bytes:
    """y is x reshaped to [rows of x, 2, 2], where the rows are computed in the graph."""
    return onnx_model(
        X,
        {"y": ("FLOAT", stated)},
        [
            ("Shape", ["x"], ["s"], {"start": 0, "end": 1}),
            ("Concat", ["s", "rest"], ["shape"], {"axis": 0}),
            ("Reshape", ["x", "shape"], ["y"], {}),
        ],
        {"rest": np.array([2, 2], np.int64)},
    )


def class_token() -> bytes:
    """As vision models are exported with one image: a token for one row goes before each row."""
    return onnx_model(
        {"x": ("FLOAT", ["N", 4, 8])},
        {"y": ("FLOAT", ["N", 40])},
        [
            ("Concat", ["token", "x"], ["all"], {"axis": 1}),
            ("Flatten", ["all"], ["y"], {}),
        ],
        {"token": np.zeros((1, 1, 8), np.float32)},
    )


def recurrent(operator: str, rows: int, **more: int) -> bytes:
    """y[N,3] out of one step, from a first state for `rows` rows."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]
    batch_first = bool(more.get("layout"))
    states = ["h"] + (["h"] if operator == "LSTM" else [])
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", ["N", 3])},
        [
            ("Unsqueeze", ["x", "axis"], ["steps"], {}),
            (
                operator,
                ["steps", "w", "r", "", "", *states],
                ["", "last"],
                {"hidden_size": 3, **more},
            ),
            ("Squeeze", ["last", "axis"], ["y"], {}),
        ],
        {
            "axis": np.array([1 if batch_first else 0], np.int64),
            "w": np.zeros((1, gates * 3, 4), np.float32),
            "r": np.zeros((1, gates * 3, 3), np.float32),
            "h": np.zeros((rows, 1, 3) if batch_first else (1, rows, 3), np.float32),
        },
    )


def external(dims: tuple[int, ...] = (4, 4), **entries: str) -> bytes:
    """y = x @ w, where w lies in another file."""

    def move(model: Any) -> None:
        (tensor,) = model.graph.initializer
        tensor.ClearField("raw_data")
        tensor.data_location = tensor.EXTERNAL
        del tensor.dims[:]
        tensor.dims.extend(dims)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)

    content = onnx_model(
        X,
        {"y": ("FLOAT", ["N", 4])},
        [("MatMul", ["x", "w"], ["y"], {})],
        {"w": np.zeros(dims, np.float32)},
    )
    return changed(content, move)


def of_domain(domain: str, *, defined: bool = False) -> bytes:
    from onnx import helper

    def move(model: Any) -> None:
        model.graph.node[0].domain = domain
        model.opset_import.add(domain=domain, version=1)
        if defined:
            node = helper.make_node("Relu", ["a"], ["b"])
            opsets = [helper.make_opsetid("", 17)]
            function = helper.make_function(domain, "Identity", ["a"], ["b"], [node], opsets)
            model.functions.append(function)

    return changed(identity(), move)
