"""ONNX graphs joined to one by onnx.compose, when names, formats and operator sets fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmctl.errors import Refused
from mmctl.exporters.graph import (
    join_inputs,
    prefix_names,
    real_inputs,
    rename_tensors,
    strip_notes,
)
from mmctl.exporters.onnx_file import first_line
from mmctl.triton.recipe import MergeRecipe, Port

BATCH = "batch"
DEFAULT_DOMAINS = ("", "ai.onnx")


def compose(recipe: MergeRecipe, models: Mapping[str, Any]) -> Any:
    """The members as one onnx.ModelProto; changes `models`. Raises Refused when they do not fit."""
    _align(models)
    for name, model in models.items():
        _prepare(model, name)
    merged = _joined(recipe, models)
    for name, (first, *others) in recipe.inputs.items():
        join_inputs(merged, _inner(first), [_inner(port) for port in others])
        rename_tensors(merged, {_inner(first): name})
    rename_tensors(merged, {_inner(port): name for name, port in recipe.outputs.items()})
    _name_opsets_once(merged)
    _put_in_order(merged.graph.input, list(recipe.inputs))
    _put_in_order(merged.graph.output, list(recipe.outputs))
    return merged


def _inner(port: Port) -> str:
    """What a tensor of a member is called while the members are joined."""
    member, tensor = port
    return f"{member}/{tensor}"


def _align(models: Mapping[str, Any]) -> None:
    """Bring all to the newest format and set of operators that one of them has."""
    newest = max(_opset(model) for model in models.values())
    for name, model in models.items():
        if _opset(model) != newest:
            model.CopyFrom(_converted(name, model, newest))
    format_version = max(model.ir_version for model in models.values())
    for model in models.values():
        model.ir_version = format_version


def _opset(model: Any) -> int:
    return max((o.version for o in model.opset_import if o.domain in DEFAULT_DOMAINS), default=0)


def _converted(name: str, model: Any, opset: int) -> Any:
    import onnx

    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception as error:  # of a C++ library, without a common base
        raise Refused(
            f"`{name}` has opset {_opset(model)}, and onnx cannot convert it to the {opset} of "
            f"another member: {first_line(error)}",
            hint="export both with one opset, or leave one of them out of `fuse`",
        ) from error


def _prepare(model: Any, name: str) -> None:
    """Names that no other member has; what a file says about itself does not hold for the whole."""
    strip_notes(model)
    model.ClearField("metadata_props")
    prefix_names(model, _inner((name, "")))
    _name_axes(model, name)


def _name_axes(model: Any, name: str) -> None:
    """All members have one batch axis, and others of their own. Shapes of inner tensors stay: with
    them ONNX Runtime fuses the same operators as in the member alone.
    """
    ports = [*real_inputs(model), *model.graph.output]
    first = [dim for value in ports for dim in value.type.tensor_type.shape.dim[:1]]
    batch = {dim.dim_param for dim in first}
    for value in (*ports, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if label := dim.dim_param:
                dim.dim_param = BATCH if label in batch else _inner((name, label))
    for dim in first:
        dim.dim_param = BATCH


def _joined(recipe: MergeRecipe, models: Mapping[str, Any]) -> Any:
    """Member after member, each joined to those before it; nothing is kept that nobody reads."""
    import onnx

    first, *others = recipe.members
    merged = models[first.name]
    for index, member in enumerate(others, start=1):
        wires = [
            (_inner(port), _inner((member.name, key)))
            for key, port in member.inputs.items()
            if port[0]
        ]
        try:
            merged = onnx.compose.merge_models(
                merged, models[member.name], wires, outputs=_read_later(recipe, index)
            )
        except (ValueError, TypeError, onnx.checker.ValidationError) as error:
            raise Refused(f"`{member.name}` cannot be joined: {first_line(error)}") from error
    return merged


def _read_later(recipe: MergeRecipe, index: int) -> list[str]:
    """Tensors that a member after the one at `index` reads, or that the merged model gives."""
    later = [port for m in recipe.members[index + 1 :] for port in m.inputs.values() if port[0]]
    return sorted({_inner(port) for port in (*later, *recipe.outputs.values())})


def _name_opsets_once(model: Any) -> None:
    """onnx.compose lists those of each member."""
    import onnx

    opsets = {entry.domain: entry.version for entry in model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(*entry) for entry in opsets.items())


def _put_in_order(values: Any, names: Sequence[str]) -> None:
    by_name = {value.name: value for value in values}
    ordered = [by_name.pop(name) for name in names]
    del values[:]
    values.extend([*ordered, *by_name.values()])
