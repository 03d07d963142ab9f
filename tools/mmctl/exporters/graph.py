"""Changes to an ONNX graph (onnx.ModelProto) that leave its arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmctl.diagnostics import nearest
from mmctl.errors import InputError


def real_inputs(model: Any) -> list[Any]:
    """Inputs that a caller must give: older files list initializers among the inputs too."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initialized]


def rename_tensors(model: Any, rename: Mapping[str, str]) -> None:
    """Give inputs and outputs the names they are served under, in the file itself.

    Raises InputError for a name that the model does not have, or has already.
    """
    known = {value.name for value in (*real_inputs(model), *model.graph.output)}
    if unknown := sorted(rename.keys() - known):
        raise InputError(
            f"`rename` names `{unknown[0]}`, which is no input or output",
            hint=nearest(unknown[0], known),
        )
    kept = _names_in(model.graph) - rename.keys()
    taken = sorted(kept.intersection(rename.values()))
    if taken or len(set(rename.values())) < len(rename):
        raise InputError(
            f"`rename` gives a name twice: `{taken[0] if taken else _doubled(rename)}`",
            hint="choose a name that no other tensor of the model has",
        )
    _rename_everywhere(model.graph, rename)


def name_tensors(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Name inputs and outputs by their place; an inner tensor of such a name gives way."""
    values = (*real_inputs(model), *model.graph.output)
    old = [value.name for value in values]
    if len(set(old)) < len(old):
        raise InputError("the model returns one tensor twice", hint="return a copy of it")
    rename = dict(zip(old, (*inputs, *outputs), strict=True))
    for name in _names_in(model.graph).intersection(rename.values()) - rename.keys():
        rename[name] = f"{name}__inner"
    _rename_everywhere(model.graph, rename)


def prefix_names(model: Any, prefix: str) -> None:
    """Put `prefix` before the names of all tensors and nodes.

    Unlike `onnx.compose.add_prefix`, also where the body of an If or Loop reads a constant that
    stands outside.
    """
    rename = {name: f"{prefix}{name}" for name in _names_in(model.graph) if name}
    _rename_everywhere(model.graph, rename)
    for node in model.graph.node:
        node.name = f"{prefix}{node.name}" if node.name else ""


def join_inputs(model: Any, kept: str, others: Sequence[str]) -> None:
    """Let the input `kept` feed what `others` feed, which are inputs no more."""
    import onnx

    for name in others:
        model.graph.node.insert(0, onnx.helper.make_node("Identity", [kept], [name]))
    for value in [value for value in model.graph.input if value.name in others]:
        model.graph.input.remove(value)


def _doubled(rename: Mapping[str, str]) -> str:
    names = list(rename.values())
    return next(name for name in names if names.count(name) > 1)


def _names_in(graph: Any) -> set[str]:
    names = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    for node in graph.node:
        names.update(node.input, node.output)
        for inner in _graphs_in(node):
            names |= _names_in(inner)
    return names


def _rename_everywhere(graph: Any, rename: Mapping[str, str]) -> None:
    """Names are unique over a graph and the graphs inside its nodes: ONNX forbids shadowing."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = rename.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [rename.get(name, name) for name in node.input]
        node.output[:] = [rename.get(name, name) for name in node.output]
        for inner in _graphs_in(node):
            _rename_everywhere(inner, rename)


def _graphs_in(node: Any) -> list[Any]:
    """Bodies of If, Loop and Scan."""
    return [
        inner
        for attribute in node.attribute
        for inner in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
    ]


def add_value_axes(model: Any, *, batched: bool) -> set[str]:
    """Give tensors of one value a row an axis of length 1 at the end; returns their names.

    Triton has no rank 0 (after the batch axis): its configs would need `reshape { shape: [] }`,
    and a model that is not batched cannot be written at all.
    """
    rank = 1 if batched else 0
    inputs = [value for value in real_inputs(model) if _rank(value) == rank]
    outputs = [value for value in model.graph.output if _rank(value) == rank]
    both = {value.name for value in inputs} & {value.name for value in outputs}
    if both:
        raise InputError(f"`{min(both)}` is an input and an output of the graph at once")
    for value in outputs:
        inner = f"{value.name}__flat"
        name = value.name
        _rename_everywhere(model.graph, {name: inner})
        value.name = name
        model.graph.node.append(_reshape(model, inner, name, [-1, 1] if batched else [1]))
    for value in inputs:
        name = value.name
        inner = f"{name}__flat"
        _rename_everywhere(model.graph, {name: inner})
        value.name = name
        model.graph.node.insert(0, _reshape(model, name, inner, [-1] if batched else []))
    for value in (*inputs, *outputs):
        value.type.tensor_type.shape.dim.add().dim_value = 1
    return {value.name for value in (*inputs, *outputs)}


def _rank(value: Any) -> int | None:
    tensor = value.type.tensor_type
    return len(tensor.shape.dim) if tensor.HasField("shape") else None


def _reshape(model: Any, source: str, target: str, shape: list[int]) -> Any:
    import onnx

    constant = f"{target}__shape"
    model.graph.initializer.append(
        onnx.helper.make_tensor(constant, onnx.TensorProto.INT64, [len(shape)], shape)
    )
    return onnx.helper.make_node("Reshape", [source, constant], [target])


def strip_notes(model: Any) -> None:
    """Remove what the exporter noted about its machine: paths and stack traces in every node."""
    for holder in (model.graph, *model.functions):
        for noted in (holder, *holder.node, *holder.value_info):
            noted.ClearField("metadata_props")
            noted.ClearField("doc_string")
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.ClearField("metadata_props")
