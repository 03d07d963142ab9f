"""`{switch: {node: "condition", other: else}}`: each row goes to the first that fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from mmctl.diagnostics import nearest
from mmctl.pipeline.findings import SWITCH
from mmctl.pipeline.graph import Merge
from mmctl.pipeline.nodes.base import ConditionText, NodeEntry
from mmctl.pipeline.scope import Callee, Scope
from mmctl.tensors import TensorSpec, TensorType

ELSE = "else"
KEPT = {"switch", "on_error", "required"}
"""Keys that mean something at a node that calls nothing."""


class SwitchNode(NodeEntry):
    """A node that calls nothing: `switch` maps other nodes to their conditions, in their order."""

    switch: Annotated[dict[str, ConditionText], Field(min_length=1)]

    @property
    def has_else(self) -> bool:
        return ELSE in self.switch.values()


def resolve_switch(name: str, node: SwitchNode, scope: Scope) -> Callee | None:
    """What all branches give, or None when a finding says why that is not known."""
    _check_keys(name, node, scope)
    known = _known_branches(name, node, scope)
    branches = {branch: callee for branch in known if (callee := scope.callee(branch))}
    gives = _merged(name, branches, scope)
    if gives is None or len(branches) < len(node.switch):
        return None
    return Callee(Merge(tuple(node.switch)), (), gives)


def _check_keys(name: str, node: SwitchNode, scope: Scope) -> None:
    for key in sorted(node.model_fields_set - KEPT):
        scope.report.add_key(
            SWITCH,
            f"`{name}.{key}`: a switch calls nothing, so it has no `{key}`",
            *("nodes", name, key),
            hint="write it at the branches",
        )


def _known_branches(name: str, node: SwitchNode, scope: Scope) -> list[str]:
    """Branches that are nodes and can be branches; a finding for each that is not."""
    known = []
    for branch in node.switch:
        place = ("nodes", name, "switch", branch)
        if branch not in scope.known_nodes:
            message = f"`{name}.switch` names `{branch}`, which is no node"
            scope.report.add_key(SWITCH, message, *place, hint=nearest(branch, scope.known_nodes))
        else:
            known.append(branch)
    return known


def _merged(
    name: str, branches: Mapping[str, Callee], scope: Scope
) -> tuple[TensorSpec, ...] | None:
    """Outputs of all branches as one: a free axis where they differ in size."""
    gives: dict[str, TensorType] | None = None
    first = ""
    for branch, callee in branches.items():
        mine = {spec.name: callee.type_of(spec) for spec in callee.gives}
        both = mine if gives is None else _common(gives, mine)
        if both is None:
            message = f"`{branch}` gives {_listed(mine)}, but `{first}` {_listed(gives or {})}"
            hint = "branches give the same outputs: rename or cast in a step"
            place = ("nodes", name, "switch", branch)
            scope.report.add_key(SWITCH, message, *place, hint=hint)
            return None
        first, gives = first or branch, both
    return tuple(TensorSpec(key, kind) for key, kind in (gives or {}).items())


def _common(
    ours: Mapping[str, TensorType], theirs: Mapping[str, TensorType]
) -> dict[str, TensorType] | None:
    if ours.keys() != theirs.keys():
        return None
    found = {key: _joined(kind, theirs[key]) for key, kind in ours.items()}
    return {key: kind for key, kind in found.items() if kind} if all(found.values()) else None


def _joined(one: TensorType, other: TensorType) -> TensorType | None:
    """None when no tensor can hold both."""
    if one == other:
        return one
    mine, theirs = one.triton_dims, other.triton_dims
    if not one.dtype.feeds(other.dtype) or one.items != other.items or len(mine) != len(theirs):
        return None
    dims = tuple(a if a == b else -1 for a, b in zip(mine, theirs, strict=True))
    return TensorType(one.dtype, one.dims if one.dims == other.dims else dims, one.items)


def _listed(kinds: Mapping[str, TensorType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
