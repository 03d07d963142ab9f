"""What both static INT8 forms share: ranges are measured once, on calibration data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmctl.errors import InputError
from mmctl.exporters.onnx_file import load_graph
from mmctl.exporters.precision.base import Batch, Conversion
from mmctl.exporters.precision.calibration import Reader, check_data, of_one_shape, require_data
from mmctl.exporters.precision.files import save, scratch
from mmctl.exporters.precision.prepare import (
    attribute_of,
    check_excluded,
    layers,
    prepared_graph,
    require_some,
)
from mmctl.exporters.precision.rounding import round_weights

CALIBRATION = {
    "minmax": "MinMax",
    "entropy": "Entropy",
    "percentile": "Percentile",
    "distribution": "Distribution",
}
"""Our word -> ONNX Runtime's."""

SMALL = 0.05
"""Of all weights: the share up to which the last layer may stay FP32."""


def checked_graph(conversion: Conversion) -> Any:
    """The prepared graph, when data and options fit it."""
    require_data(conversion.calibration)
    model = prepared_graph(conversion.source)
    check_excluded(model, conversion.options.exclude_nodes)
    excluded = conversion.options.exclude_nodes
    require_some(layers(model), excluded, "Conv, MatMul or Gemm with constant weights")
    check_data(model, conversion.calibration)
    return model


def quantized(
    conversion: Conversion, model: Any, settings: Mapping[str, Any], *, keep_ends: bool
) -> tuple[Any, list[str]]:
    """The graph with Q/DQ nodes, and the names of the nodes that stay FP32 by wish.

    `settings` go to ONNX Runtime's `quantize_static`. `keep_ends` leaves out the first layers and a
    small last one: they make most of the error, and cost little of the time.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    options = conversion.options
    target = conversion.work / "quantized.onnx"
    with scratch(conversion.work):
        preprocessed = _preprocessed(conversion, model)
        fused = load_graph(preprocessed)
        excluded = {*_still_there(model, fused, options.exclude_nodes)}
        excluded.update(_ends_of(fused) if keep_ends else ())
        quantize_static(
            preprocessed,
            target,
            Reader(_batches(conversion)),
            quant_format=QuantFormat.QDQ,
            weight_type=QuantType.QInt8,
            per_channel=options.per_channel,
            reduce_range=options.reduce_range,
            nodes_to_exclude=sorted(excluded),
            calibrate_method=CalibrationMethod[CALIBRATION[options.calibrate]],
            use_external_data_format=model.ByteSize() > conversion.inline_bytes,
            **settings,
        )
        made = load_graph(target)
        round_weights(made, fused, conversion.calibration, conversion.work / "watched.onnx")
        return made, sorted(excluded)


def _batches(conversion: Conversion) -> Sequence[Batch]:
    """Histograms are taken over all batches at once, which must have one shape then."""
    if conversion.options.calibrate == "minmax":
        return conversion.calibration
    return of_one_shape(conversion.calibration)


def _ends_of(model: Any) -> tuple[str, ...]:
    """The first layer, with the block that it opens where channels come apart in one and are mixed
    again in the next: behind few channels of many pixels every rounding shows. The last layer where
    it is small. None where hardly anything would be left.
    """
    nodes = {node.name: node for node in model.graph.node}
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in model.graph.initializer}
    found = layers(model)
    opens = len(found) > 3 and attribute_of(nodes[found[1]], "group", 1) > 1
    first = 3 if opens else 1
    size = [sum(sizes.get(name, 0) for name in nodes[layer].input[:2]) for layer in found]
    last = 1 if size[-1] <= SMALL * sum(size) else 0
    ends = (*found[:first], *found[len(found) - last :])
    return ends if len(found) > len(ends) else ()


def _still_there(model: Any, fused: Any, names: Sequence[str]) -> list[str]:
    """Names after fusion: `/head/MatMul` may now be `/head/MatMul/MatMulAddFusion`."""
    now = [node.name for node in fused.graph.node]
    kept = {
        name: [new for new in now if new == name or new.startswith(f"{name}/")] for name in names
    }
    lost = [name for name in layers(model) if name in kept and not kept[name]]
    if lost:
        raise InputError(
            f"`exclude_nodes`: `{lost[0]}` is fused with its neighbours before quantization",
            hint="exclude the nodes around it too, or use `method: dynamic`",
        )
    return [new for found in kept.values() for new in found]


def _preprocessed(conversion: Conversion, model: Any) -> Path:
    """With BatchNormalization folded and shapes inferred."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = conversion.work / "prepared.onnx"
    target = conversion.work / "preprocessed.onnx"
    save(model, prepared, conversion.inline_bytes)
    large = model.ByteSize() > conversion.inline_bytes
    more = {"save_as_external_data": large, "all_tensors_to_one_file": large}
    try:
        quant_pre_process(prepared, target, **more)
    except Exception as error:  # a plain one, where it cannot follow the shapes
        if isinstance(error, OSError):
            raise
        quant_pre_process(prepared, target, skip_symbolic_shape=True, **more)
    return target


def method_of(conversion: Conversion, excluded: Sequence[str]) -> dict[str, Any]:
    options = conversion.options
    return {
        "calibrate": options.calibrate,
        "batches": len(conversion.calibration),
        "per_channel": options.per_channel,
        "reduce_range": options.reduce_range,
        "excluded": list(excluded),
    }
