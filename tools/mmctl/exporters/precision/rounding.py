"""Weights rounded so that, on calibration data, each layer answers as closely as it can.

Rounding every weight to the nearest step leaves errors that add up where inputs go together, as
neighbouring pixels do. Here the weights of a filter are rounded one after the other, and those
still to come make up for the error so far. The method is that of GPTQ (Frantar et al., 2022).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmctl.exporters.onnx_file import MAX_BYTES, open_session
from mmctl.exporters.precision.base import Batch
from mmctl.exporters.precision.files import save
from mmctl.exporters.precision.filters import Filters, Numbers, has_filters
from mmctl.exporters.samples import SEED

Floats = NDArray[np.float64]

DAMPING = 0.05
"""Added to the squares of all inputs, as a share of their mean: data tells little about some."""


@dataclass(frozen=True, slots=True)
class Layer:
    """`exact` is the FP32 weight that the node reads `reads` with; `stored` is its INT8 tensor in
    the Q/DQ graph, in steps of `scales`: one, or one a filter.
    """

    filters: Filters
    reads: str
    exact: Numbers
    stored: Any
    scales: Numbers


def round_weights(quantized: Any, fp32: Any, batches: Sequence[Batch], watched: Path) -> None:
    """Round the weights of a Q/DQ graph anew, in place; scales stay as they are.

    `fp32` is the graph that it was made from, whose nodes have the same names. `watched` is a file
    to write, a graph that shows what the layers read.
    """
    layers = list(_layers(quantized, fp32))
    _write_watched(fp32, (layer.reads for layer in layers), watched)
    for layer, products in zip(layers, _products(watched, layers, batches), strict=True):
        _round(layer, products)


def _round(layer: Layer, products: Floats) -> None:
    from onnx.numpy_helper import from_array, to_array

    exact = layer.filters.rows(layer.exact)
    steps = np.broadcast_to(layer.scales, exact.shape[0] * exact.shape[1]).reshape(exact.shape[:2])
    most = float(np.abs(to_array(layer.stored).astype(np.int16)).max())
    rounded = round_filters(exact, steps, products, most).astype(np.int8)
    layer.stored.CopyFrom(from_array(layer.filters.weight(rounded), layer.stored.name))


def round_filters(exact: Numbers, steps: Numbers, products: Floats, most: float) -> Floats:
    """Whole numbers of steps, at most `most`, for filters [groups, filters, inputs].

    `steps` are [groups, filters]; `products` are sums of inputs times inputs, [groups, inputs,
    inputs]. The strongest inputs are rounded first, while most others can make up for it.
    """
    order = np.argsort(-np.einsum("gii->gi", products), axis=1, kind="stable")
    left: Floats = np.take_along_axis(exact.astype(np.float64), order[:, None, :], 2)
    shares = _shares(products, order)
    rounded = np.zeros_like(left)
    for index in range(left.shape[2]):
        rounded[:, :, index] = np.clip(np.round(left[:, :, index] / steps), -most, most)
        error = left[:, :, index] - rounded[:, :, index] * steps
        left[:, :, index:] -= error[:, :, None] * shares[:, None, index, index:]
    found: Floats = np.take_along_axis(rounded, np.argsort(order, axis=1)[:, None, :], 2)
    return found


def _shares(products: Floats, order: NDArray[np.intp]) -> Floats:
    """How much of one input's error each later one takes over: upper triangles, ones on the
    diagonal, inputs in order.
    """
    rows = np.take_along_axis(products, order[:, :, None], 1)
    ordered: Floats = np.take_along_axis(rows, order[:, None, :], 2)
    diagonal = np.arange(ordered.shape[1])
    mean = ordered[:, diagonal, diagonal].mean(axis=1, keepdims=True)
    ordered[:, diagonal, diagonal] += DAMPING * np.where(mean > 0, mean, 1)
    upper = np.linalg.cholesky(np.linalg.inv(ordered)).transpose(0, 2, 1)
    shares: Floats = upper / upper[:, diagonal, diagonal][:, :, None]
    return shares


def _layers(quantized: Any, fp32: Any) -> Iterator[Layer]:
    """Those with a constant symmetric INT8 weight of their own."""
    from onnx import TensorProto
    from onnx.numpy_helper import to_array

    constants = {tensor.name: tensor for tensor in quantized.graph.initializer}
    made_by = {name: node for node in quantized.graph.node for name in node.output}
    exact = {tensor.name: tensor for tensor in fp32.graph.initializer}
    reads = {node.name: node.input for node in fp32.graph.node if has_filters(node)}
    for node in quantized.graph.node:
        made = made_by.get(node.input[1]) if node.name in reads else None
        if made is None or made.op_type != "DequantizeLinear" or made.input[0] not in constants:
            continue
        stored, scales, *point = (constants[name] for name in made.input)
        symmetric = not any(to_array(tensor).any() for tensor in point)
        flat = node.op_type == "Conv" or len(stored.dims) == 2
        if stored.data_type == TensorProto.INT8 and symmetric and flat:
            tensor, weight = reads[node.name][:2]
            filters = Filters(node, tuple(stored.dims))
            yield Layer(filters, tensor, to_array(exact[weight]), stored, to_array(scales))


def _write_watched(fp32: Any, tensors: Iterable[str], path: Path) -> None:
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(fp32)
    given = {value.name for value in (*model.graph.input, *model.graph.output)}
    inside = sorted({*tensors} - given)
    model.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, inside))
    save(model, path, MAX_BYTES)


def _products(watched: Path, layers: Sequence[Layer], batches: Sequence[Batch]) -> list[Floats]:
    """Inputs times inputs of every layer, summed over places and batches."""
    random = np.random.default_rng(SEED)
    session = open_session(watched)
    names = [value.name for value in session.get_outputs()]
    sums: list[Floats] = []
    for batch in batches:
        answers = session.run(names, dict(batch))
        seen: Mapping[str, Numbers] = {**batch, **dict(zip(names, answers, strict=True))}
        products = [_squared(layer.filters.places(seen[layer.reads], random)) for layer in layers]
        sums = [a + b for a, b in zip(sums, products, strict=True)] if sums else products
    return sums


def _squared(places: Numbers) -> Floats:
    products: Floats = (places.transpose(0, 2, 1) @ places).astype(np.float64)
    return products
