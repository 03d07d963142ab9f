"""List tensors: who may take one, and what `foreach` runs over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mmctl.pipeline.findings import LIST
from mmctl.pipeline.graph import Wire
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.scope import Callee, Scope, parse_reference
from mmctl.tensors import TensorType


def check_foreach(name: str, node: NodeEntry, scope: Scope) -> None:
    """Findings about `foreach` of a node, and about what it runs for each item."""
    if node.foreach is None:
        return
    place = ("nodes", name, "foreach")
    wire = scope.wire(node.foreach, *place)
    kind = scope.type_of(wire) if wire else None
    if wire is not None and kind is not None and not kind.items:
        message = f"`{name}.foreach`: `{wire}` is {kind}, not a list tensor"
        hint = f'a step gives one that declares it: outputs: {{{wire.tensor}: "{_as_list(kind)}"}}'
        scope.report.add(LIST, message, *place, hint=hint)
    elif wire is not None and wire not in map(parse_reference, node.inputs.values()):
        message = f"`{name}.foreach` runs over `{wire}`, but no input of `{name}` takes it"
        hint = f"wire it to the input that gets one item: inputs: {{...: {wire}}}"
        scope.report.add(LIST, message, *place, hint=hint)
    if (callee := scope.callee(name)) is not None:
        _check_gives_no_lists(name, callee, scope)


def _check_gives_no_lists(name: str, callee: Callee, scope: Scope) -> None:
    for spec in callee.gives:
        if spec.type.items:
            scope.report.add(
                LIST,
                f"`{name}.{spec.name}` is a list for each item: there are no lists of lists",
                *("nodes", name, "outputs", spec.name),
                hint="declare what it gives for one item; `foreach` makes a list of it",
            )


def check_pipeline_lists(scope: Scope, outputs: Mapping[str, Wire]) -> None:
    """A pipeline's own inputs and outputs have a fixed number of axes."""
    for name, kind in scope.inputs.items():
        if kind is not None and kind.items:
            message = f"the input `{name}` is the list tensor {kind}: callers cannot send one"
            hint = "take what it is made from, and make the list in a step"
            scope.report.add(LIST, message, "inputs", name, hint=hint)
    for name, wire in outputs.items():
        kind = scope.type_of(wire)
        if kind is not None and kind.items:
            message = f"`{name}` shows the list tensor `{wire}` ({kind}): answers cannot carry one"
            hint = "make one value a row of it in a step, such as JSON"
            scope.report.add(LIST, message, "outputs", name, hint=hint)


def _as_list(kind: TensorType) -> str:
    return str(replace(kind, items=True))
