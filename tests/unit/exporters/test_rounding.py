"""Weights that are rounded together: what layers see, and how close their answers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_samples import onnx_model
from precision_models import answers, written

from mmctl.exporters.precision.filters import Filters, has_filters
from mmctl.exporters.precision.rounding import round_filters, round_weights

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layer(kind: str, given: tuple[int, ...], weight: Any, **options: Any) -> bytes:
    return onnx_model(
        {"x": ("FLOAT", ["batch", *given])},
        {"y": ("FLOAT", None)},
        [(kind, ["x", "w"], ["y"], {"name": "layer", **options})],
        {"w": weight},
    )


PADDED = {"pads": [1, 0, 1, 2], "strides": [2, 1]}


@pytest.mark.parametrize(
    ("kind", "given", "weight", "options"),
    [
        pytest.param("Conv", (3, 6, 7), (4, 3, 1, 1), {}, id="convolution of points"),
        pytest.param("Conv", (3, 6, 7), (4, 3, 3, 2), PADDED, id="with pads and strides"),
        pytest.param("Conv", (3, 9, 9), (4, 3, 3, 3), {"dilations": [3, 2]}, id="with dilations"),
        pytest.param("Conv", (4, 6, 7), (8, 2, 3, 3), {"group": 2}, id="in groups"),
        pytest.param("Conv", (4, 6, 7), (4, 1, 3, 3), {"group": 4}, id="channel by channel"),
        pytest.param("Conv", (3, 9), (4, 3, 2), {}, id="along one axis"),
        pytest.param("MatMul", (5, 6), (6, 4), {}, id="product of sequences"),
        pytest.param("Gemm", (6,), (6, 4), {}, id="product"),
        pytest.param("Gemm", (6,), (4, 6), {"transB": 1}, id="product with a turned weight"),
    ],
)
def test_filters_times_places_are_the_layers_answers(
    kind: str,
    given: tuple[int, ...],
    weight: tuple[int, ...],
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    w, x = numbers(*weight), numbers(2, *given, seed=1)
    path = written(layer(kind, given, w, **options), tmp_path / "layer.onnx")
    (node,) = onnx.load(path).graph.node
    filters = Filters(node, weight)
    rows, places = filters.rows(w), filters.places(x, np.random.default_rng(0))
    np.testing.assert_array_equal(filters.weight(rows), w)
    found = (places @ rows.transpose(0, 2, 1)).ravel()
    assert has_filters(node)
    np.testing.assert_allclose(np.sort(found), np.sort(answers(path, {"x": x}).ravel()), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("Conv", {"auto_pad": "SAME_UPPER"}), ("Gemm", {"transA": 1}), ("ConvTranspose", {})],
)
def test_layers_that_see_otherwise_are_left_alone(kind: str, options: dict[str, Any]) -> None:
    assert not has_filters(onnx.helper.make_node(kind, ["x", "w"], ["y"], **options))


def sums_of(inputs: Any) -> Any:
    """Of inputs times inputs, for one group."""
    return (inputs.T @ inputs).astype(np.float64)[None]


def distance(inputs: Any, exact: Any, rounded: Any) -> float:
    return float(np.square(inputs @ (exact - rounded)[0].T).sum())


def test_answers_stay_closer_than_with_each_weight_rounded_to_the_nearest() -> None:
    inputs = numbers(500, 1) + 0.3 * numbers(500, 24, seed=1)  # that go together
    exact = numbers(1, 6, 24, seed=2)
    steps = np.abs(exact).max(axis=2) / 7
    rounded = round_filters(exact, steps, sums_of(inputs), most=7)
    nearest = np.round(exact / steps[..., None])
    assert np.array_equal(rounded, np.round(rounded))
    assert np.abs(rounded).max() <= 7
    near, far = (distance(inputs, exact, n * steps[..., None]) for n in (rounded, nearest))
    assert near < 0.5 * far


@pytest.mark.parametrize("inputs", [np.zeros((9, 4)), np.eye(4)], ids=["nothing seen", "apart"])
def test_inputs_that_tell_nothing_of_each_other_are_rounded_to_the_nearest(inputs: Any) -> None:
    exact = np.array([[[0.2, 0.6, -1.4, 5.0]]])
    rounded = round_filters(exact, np.ones((1, 1)), sums_of(inputs), most=3)
    assert rounded.tolist() == [[[0, 1, -1, 3]]]


def test_a_graph_answers_closer_and_only_its_weights_change(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_static

    from mmctl.exporters.precision.calibration import Reader

    weight = numbers(8, 8, 3, 3)
    graph = layer("Conv", (8, 12, 12), weight, pads=[1, 1, 1, 1])
    fp32, int8 = written(graph, tmp_path / "fp32.onnx"), tmp_path / "int8.onnx"
    smooth = np.cumsum(numbers(16, 8, 12, 12, seed=1), axis=3)
    quantize_static(
        fp32,
        int8,
        Reader([{"x": smooth}]),  # so that no value is beyond the ranges
        per_channel=True,
        activation_type=QuantType.QUInt16,  # so that only the weights' error is left
        weight_type=QuantType.QInt8,
        extra_options={"UseQDQContribOps": True},
    )
    before, made = onnx.load(int8), onnx.load(int8)
    round_weights(made, onnx.load(fp32), [{"x": smooth[:8]}], tmp_path / "watched.onnx")
    changed = [
        old.name
        for old, new in zip(before.graph.initializer, made.graph.initializer, strict=True)
        if old != new
    ]
    assert changed == ["w_quantized"]
    closer = written(made.SerializeToString(), tmp_path / "closer.onnx")
    unseen = {"x": smooth[8:]}
    exact = answers(fp32, unseen)
    near, far = (np.square(answers(path, unseen) - exact).mean() for path in (closer, int8))
    assert near < 0.6 * far
