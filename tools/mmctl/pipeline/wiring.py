"""Do the wires fit? Each input of a node against what feeds it."""

from __future__ import annotations

from dataclasses import replace

from mmctl.diagnostics import nearest
from mmctl.documents import Key
from mmctl.pipeline.findings import (
    ABSENT,
    DTYPE_DIFFERS,
    LIST,
    MISSING_INPUT,
    OUTPUT_IS_INPUT,
    SHAPE_DIFFERS,
    SHAPE_OPEN,
    UNKNOWN_INPUT,
)
from mmctl.pipeline.graph import Wire
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.nodes.switch import SwitchNode
from mmctl.pipeline.scope import Callee, Scope
from mmctl.pipeline.spec import PipelineFile
from mmctl.tensors import TensorType


def check_inputs(name: str, node: NodeEntry, scope: Scope) -> None:
    """Findings about what is wired to a node, and what is not."""
    if isinstance(node, SwitchNode):
        return
    callee = scope.callee(name)
    for key, text in node.inputs.items():
        place = ("nodes", name, "inputs", key)
        wire = scope.wire(text, *place)
        spec = callee.input(key.removesuffix("?")) if callee else None
        if callee is None:
            continue
        if spec is None:
            _report_unknown(name, key, node, callee, scope)
            continue
        if key.endswith("?") and not spec.optional:
            message = f"`{name}` always needs `{spec.name}`: only steps of your own can do without"
            scope.report.add_key(ABSENT, message, *place, hint=f"write `{spec.name}`")
        if wire is not None and not callee.is_own:
            _check_wire(f"{name}.{spec.name}", wire, spec.type, node, scope, *place)
    if callee is not None:
        _check_missing(name, node, callee, scope)


def check_outputs(file: PipelineFile, scope: Scope) -> dict[str, Wire]:
    """The tensors that the pipeline's outputs show; those that are wrong are left out."""
    found = {}
    for name, text in file.outputs.items():
        wire = scope.wire(text, "outputs", name)
        if wire is not None and not wire.node:
            scope.report.add(
                OUTPUT_IS_INPUT,
                f"`{name}` shows the input `{wire}`, which no node made",
                *("outputs", name),
                hint="leave it out: the caller has it already",
            )
        elif wire is not None:
            found[name] = wire
    return found


def _report_unknown(name: str, key: str, node: NodeEntry, callee: Callee, scope: Scope) -> None:
    free = {spec.name for spec in callee.takes} - _given(node)
    scope.report.add_key(
        UNKNOWN_INPUT,
        f"`{name}` takes no input `{key}`",
        *("nodes", name, "inputs", key),
        hint=nearest(key, free),
    )


def _given(node: NodeEntry) -> set[str]:
    return {key.removesuffix("?") for key in node.inputs}


def _check_missing(name: str, node: NodeEntry, callee: Callee, scope: Scope) -> None:
    """An input that the callee does not have stands for one that is missing: it is told once."""
    given = _given(node)
    missing = [spec for spec in callee.takes if spec.name not in given and not spec.optional]
    unknown = given - {spec.name for spec in callee.takes}
    for spec in missing if len(missing) > len(unknown) else ():
        scope.report.add_key(
            MISSING_INPUT,
            f"`{name}` needs its input `{spec}`",
            *("nodes", name, "inputs") if node.inputs else ("nodes", name),
            hint=f"add it: inputs: {{{spec.name}: ...}}",
        )
    if not given and not missing:
        message = f"`{name}` has no inputs: nothing would start it"
        scope.report.add_key(MISSING_INPUT, message, "nodes", name)


def _check_wire(
    taker: str, wire: Wire, wanted: TensorType, node: NodeEntry, scope: Scope, *place: Key
) -> None:
    given = scope.type_of(wire)
    if given is None:
        return
    if given.items and node.foreach is None:
        message = f"`{taker}` takes {wanted}, but `{wire}` is the list tensor {given}"
        hint = f"run the node for each item: foreach: {wire}"
        scope.report.add(LIST, message, *place, hint=hint)
        return
    what = f"an item of `{wire}`" if given.items else f"`{wire}`"
    given = replace(given, items=False)
    message = f"`{taker}` takes {wanted}, but {what} is {given}"
    if not given.dtype.feeds(wanted.dtype):
        hint = "Triton never casts: cast in a step, or change the producer"
        scope.report.add(DTYPE_DIFFERS, message, *place, hint=hint)
    elif not given.feeds(wanted):
        scope.report.add(SHAPE_DIFFERS, message, *place, hint=_shape_hint(given, wanted))
    elif _is_checked_late(given, wanted):
        message = f"{message}: rows of another size fail when a request runs"
        scope.report.add(SHAPE_OPEN, message, *place)


def _shape_hint(given: TensorType, wanted: TensorType) -> str | None:
    if sorted(given.dims) == sorted(wanted.dims):
        return "the axes stand in another order: transpose in the step that makes it"
    if len(given.triton_dims) != len(wanted.triton_dims):
        return "shapes leave the batch axis out; both ends need the same number of axes"
    return None


def _is_checked_late(given: TensorType, wanted: TensorType) -> bool:
    pairs = zip(given.triton_dims, wanted.triton_dims, strict=True)
    return any(mine == -1 and theirs != -1 for mine, theirs in pairs)
