"""Counting multiplications against sums done by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_samples import Ports, onnx_model
from precision_models import ids, images, small_convolutions, small_products, written

from mmctl.errors import InputError
from mmctl.exporters.macs import Macs, count_macs
from mmctl.exporters.precision import STAGES
from mmctl.exporters.precision.base import Conversion

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def node(
    operator: str, x: tuple[int, ...], constants: dict[str, Any], rank: int, **more: Any
) -> tuple[bytes, dict[str, Any]]:
    """A model of one operator on `x` and constants, and its input."""
    ports: Ports = {"x": ("FLOAT", x)}
    shape = [None] * rank
    nodes = [(operator, ["x", *constants], ["y"], more)]
    return onnx_model(ports, {"y": ("FLOAT", shape)}, nodes, constants), {"x": zeros(*x)}


@pytest.mark.parametrize(
    ("model", "macs"),
    [
        (node("Conv", (2, 3, 8, 8), {"w": zeros(5, 3, 3, 3)}, 4), 2 * 5 * 6 * 6 * 3 * 9),
        (node("Conv", (1, 4, 8, 8), {"w": zeros(4, 1, 3, 3)}, 4, group=4), 4 * 6 * 6 * 9),
        (node("ConvTranspose", (1, 3, 4, 4), {"w": zeros(3, 5, 2, 2)}, 4), 3 * 16 * 5 * 4),
        (node("MatMul", (2, 6, 7), {"w": zeros(7, 3)}, 3), 2 * 6 * 3 * 7),
        (node("Gemm", (4, 7), {"w": zeros(7, 3)}, 2), 4 * 3 * 7),
        (node("Gemm", (7, 4), {"w": zeros(7, 3)}, 2, transA=1), 4 * 3 * 7),
        (
            node(
                "LSTM",
                (5, 2, 3),
                {"w": zeros(1, 16, 3), "r": zeros(1, 16, 4)},
                4,
                hidden_size=4,
            ),
            5 * 2 * 16 * (3 + 4),
        ),
        (node("Relu", (4, 7), {}, 2), 0),
    ],
    ids=[
        "convolution",
        "grouped convolution",
        "transposed convolution",
        "product",
        "gemm",
        "gemm, transposed",
        "lstm",
        "nothing",
    ],
)
def test_macs_of_one_operator(
    model: tuple[bytes, dict[str, Any]], macs: int, tmp_path: Path
) -> None:
    content, inputs = model
    assert count_macs(written(content, tmp_path / "m.onnx"), inputs).total == macs


@pytest.mark.parametrize(
    ("shapes", "heads"),
    [({"q": (2, 3, 5, 4), "k": (2, 3, 7, 4)}, {}), ({"q": (2, 5, 12), "k": (2, 7, 12)}, {"h": 3})],
    ids=["rank 4", "rank 3"],
)
def test_attention_counts_both_products(
    shapes: dict[str, tuple[int, ...]], heads: dict[str, int], tmp_path: Path
) -> None:
    from onnx import TensorProto, helper

    every = {**shapes, "v": shapes["k"]}
    more = {f"{side}_num_heads": heads["h"] for side in ("q", "kv") if heads}
    graph = helper.make_graph(
        [helper.make_node("Attention", ["q", "k", "v"], ["y"], **more)],
        "attention",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in every.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes["q"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    path = written(model.SerializeToString(), tmp_path / "m.onnx")
    counted = count_macs(path, {name: zeros(*shape) for name, shape in every.items()})
    assert counted.by_operator == {"Attention": 2 * (2 * 3 * 5 * 7 * 4)}


@pytest.mark.parametrize(
    ("stage", "kind"),
    [("int8-static", "image"), ("int8-dynamic", "ids"), ("int8-tensorrt", "image")],
)
def test_quantized_files_multiply_as_often(stage: str, kind: str, tmp_path: Path) -> None:
    content = {"image": small_convolutions, "ids": small_products}[kind]()
    inputs = {"image": images, "ids": ids}[kind](2)
    source, target = written(content, tmp_path / "fp32.onnx"), tmp_path / "m.onnx"
    (tmp_path / "work").mkdir()
    STAGES[stage].convert(Conversion(source, target, tmp_path / "work", [inputs]))
    assert count_macs(source, inputs).total == count_macs(target, inputs).total > 0


def test_integer_convolutions_are_counted_by_their_weights(tmp_path: Path) -> None:
    one, zero = np.float32(1), np.uint8(0)
    model = onnx_model(
        {"x": ("UINT8", (1, 3, 8, 8))},
        {"y": ("UINT8", [None] * 4)},
        [("QLinearConv", ["x", "s", "z", "w", "s", "wz", "s", "z"], ["y"], {})],
        {"s": one, "z": zero, "wz": np.int8(0), "w": np.zeros((5, 3, 3, 3), np.int8)},
    )
    path = written(model, tmp_path / "m.onnx")
    counted = count_macs(path, {"x": np.zeros((1, 3, 8, 8), np.uint8)})
    assert counted.by_operator == {"QLinearConv": 5 * 6 * 6 * 3 * 9}
    assert counted.convolutions == counted.total


@pytest.mark.parametrize(
    ("gmacs", "size"), [(0.001, "light"), (5, "medium"), (50, "medium"), (50.1, "heavy")]
)
def test_size_of_a_request_in_gflops(gmacs: float, size: str) -> None:
    macs = Macs({"MatMul": int(gmacs * 1e9)})
    assert macs.gflops == pytest.approx(2 * gmacs)
    assert macs.size == size


def test_inputs_that_do_not_fit_are_told(tmp_path: Path) -> None:
    path = written(small_products(), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"m\.onnx cannot be run to count: "):
        count_macs(path, {"ids": zeros(1, 2)})
