"""A graph as the quantizers need it: constants where they look, every node with a name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.exporters.graph import real_inputs
from mmctl.exporters.onnx_file import load_graph

CONVOLUTIONS = ("Conv", "ConvTranspose")
PRODUCTS = ("MatMul", "Gemm")


def prepared_graph(path: Path) -> Any:
    """The file as onnx.ModelProto, with external data, ready for any converter."""
    model = load_graph(path)
    inputs = real_inputs(model)
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    _constants_to_initializers(model.graph)
    _fold_casts(model.graph)
    _name_nodes(model.graph)
    return model


def _constants_to_initializers(graph: Any) -> None:
    """Quantizers take only initializers for weights."""
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if value is not None:
            moved = graph.initializer.add()
            moved.CopyFrom(value)
            moved.name = node.output[0]
            graph.node.remove(node)


def _fold_casts(graph: Any) -> None:
    """Weights stored as FP16 with a Cast behind each would hide from every converter."""
    import onnx

    stored = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    for node in [node for node in graph.node if node.op_type == "Cast"]:
        if node.input[0] in stored and node.output[0] not in outputs:
            target = next(a.i for a in node.attribute if a.name == "to")
            array = onnx.numpy_helper.to_array(stored[node.input[0]])
            numpy_type = onnx.helper.tensor_dtype_to_np_dtype(target)
            folded = onnx.numpy_helper.from_array(array.astype(numpy_type), node.output[0])
            graph.initializer.append(folded)
            graph.node.remove(node)
    _drop_unused(graph, stored)


def _drop_unused(graph: Any, stored: dict[str, Any]) -> None:
    used = _used_in(graph)
    for name, tensor in stored.items():
        if name not in used:
            graph.initializer.remove(tensor)


def _used_in(graph: Any) -> set[str]:
    """Names that nodes read, also those inside If, Loop and Scan, and what the graph gives."""
    used = {value.name for value in graph.output}
    for node in graph.node:
        used.update(node.input)
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else attribute.graphs
            used = used.union(*(_used_in(body) for body in inner))
    return used


def _name_nodes(graph: Any) -> None:
    """Excluding works by name."""
    taken = {node.name for node in graph.node}
    for index, node in enumerate(graph.node):
        if not node.name:
            name = f"{node.op_type}_{index}"
            node.name = name if name not in taken else f"{name}__node"


def layers(model: Any, kinds: Sequence[str] = (*CONVOLUTIONS, *PRODUCTS)) -> list[str]:
    """Names of the nodes of these kinds that have constant FP32 weights, in order of running."""
    import onnx

    weights = {
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    return [
        node.name
        for node in model.graph.node
        if node.op_type in kinds and any(name in weights for name in node.input[:2])
    ]


def attribute_of(node: Any, name: str, default: Any) -> Any:
    import onnx

    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def check_excluded(model: Any, excluded: Sequence[str]) -> None:
    """Raises InputError for a node that the graph does not have."""
    names = {node.name for node in model.graph.node}
    for name in excluded:
        if name not in names:
            raise InputError(
                f"`exclude_nodes`: the graph has no node `{name}`", hint=nearest(name, names)
            )


def require_some(found: Sequence[str], excluded: Sequence[str], what: str) -> None:
    """Raises InputError when nothing is left to convert."""
    if not set(found) - set(excluded):
        left = " outside `exclude_nodes`" if found else ""
        raise InputError(
            f"there is nothing to convert: the graph has no {what}{left}",
            hint="leave `precision: fp32`",
        )
