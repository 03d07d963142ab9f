"""What only a form with a runner can keep: each use is named, and checked as far as it can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmctl.diagnostics import nearest
from mmctl.pipeline.expressions import parse_condition, wrong_subscripts
from mmctl.pipeline.findings import EXPRESSION, NEEDS_BLS, POLICY, UNKNOWN_REFERENCE
from mmctl.pipeline.graph import Wire
from mmctl.pipeline.nodes.base import NodeEntry, policies_used
from mmctl.pipeline.scope import Scope, parse_reference
from mmctl.pipeline.spec import PipelineFile
from mmctl.tensors import DType, TensorType


def check_pipeline_policies(file: PipelineFile, scope: Scope) -> None:
    used = {
        "deadline_ms": file.deadline_ms is not None,
        "max_pending": file.max_pending is not None,
        "provenance": file.provenance,
    }
    for name, is_used in used.items():
        if is_used:
            scope.report.needs_bls(f"`{name}`", name)
    if file.form not in (None, "ensemble"):
        scope.report.add(NEEDS_BLS, f"the {file.form} form is not built yet", "form")
    if file.fuse is not None:
        scope.report.add(NEEDS_BLS, "`fuse` needs the fused form, not built yet", "fuse")


def check_policies(name: str, node: NodeEntry, scope: Scope) -> None:
    """One finding for each policy of a node, and one for each that is wrong in itself."""
    for policy in policies_used(node):
        scope.report.needs_bls(f"`{name}.{policy}`", "nodes", name, policy)
    _check_on_error(name, node, scope)
    _check_condition(name, node, scope)
    _check_named_nodes(name, node, scope)
    if node.foreach is not None:
        scope.wire(node.foreach, "nodes", name, "foreach")


def policy_wires(node: NodeEntry) -> Iterator[Wire]:
    """Tensors that a node reads by its policies."""
    if node.foreach is not None:
        yield parse_reference(node.foreach)
    if node.when is not None:
        try:
            yield from (reference.wire for reference in parse_condition(node.when))
        except ValueError:
            return


def _check_condition(name: str, node: NodeEntry, scope: Scope) -> None:
    if node.when is None:
        return
    place = ("nodes", name, "when")
    try:
        references = parse_condition(node.when)
    except ValueError as error:
        scope.report.add(EXPRESSION, f"`{name}.when`: {error}", *place)
        return
    for reference in references:
        if problem := scope.wrong_reference(reference.wire):
            scope.report.add(UNKNOWN_REFERENCE, problem[0], *place, hint=problem[1])
        elif message := wrong_subscripts(reference, scope):
            scope.report.add(EXPRESSION, message, *place)


def _check_named_nodes(name: str, node: NodeEntry, scope: Scope) -> None:
    named = {"after": node.after, "quorum": node.quorum.of if node.quorum else ()}
    for key, others in named.items():
        for other in others:
            if other not in scope.known_nodes:
                hint = nearest(other, scope.known_nodes)
                message = f"`{name}.{key}` names `{other}`, which is no node"
                scope.report.add(POLICY, message, "nodes", name, key, hint=hint)
    if node.quorum and node.quorum.need > len(node.quorum.of):
        message = f"`{name}.quorum` needs {node.quorum.need} of {len(node.quorum.of)}"
        scope.report.add(POLICY, message, "nodes", name, "quorum")


def _check_on_error(name: str, node: NodeEntry, scope: Scope) -> None:
    place = ("nodes", name, "on_error")
    if node.on_error == "fail":
        return
    if not isinstance(node.on_error, dict):
        message = f"`{name}.on_error` is `fail`, or a value for each output"
        scope.report.add(POLICY, message, *place)
        return
    callee = scope.callee(name)
    for key, value in node.on_error.items() if callee else ():
        spec = callee.output(key) if callee else None
        if spec is None:
            hint = nearest(key, [s.name for s in callee.gives] if callee else [])
            message = f"`{name}` has no output `{key}`"
            scope.report.add_key(POLICY, message, *place, key, hint=hint)
        elif not _fits(value, spec.type, spec.type.dims):
            message = f"`{name}.on_error`: `{key}` is {spec.type}, and the value is not"
            scope.report.add(POLICY, message, *place, key)


def _fits(value: Any, kind: TensorType, dims: tuple[int, ...]) -> bool:
    """Whether a value is one element (it fills the shape), or a list of the shape of one row."""
    if not isinstance(value, list):
        return _is_element(value, kind.dtype)
    return (
        bool(dims)
        and dims[0] in (-1, len(value))
        and all(isinstance(v, list) == (len(dims) > 1) for v in value)
        and all(_fits(v, kind, dims[1:]) for v in value)
    )


def _is_element(value: Any, dtype: DType) -> bool:
    """Scalars of a document are text: does it spell a value of this type?"""
    if not isinstance(value, str):
        return False
    if dtype.is_text:
        return True
    if dtype is DType.BOOL:
        return value in ("true", "false")
    try:
        number = float(value) if dtype in _FLOATS else int(value)
    except ValueError:
        return False
    return not dtype.startswith("uint") or number >= 0


_FLOATS = (DType.FP16, DType.FP32, DType.FP64, DType.BF16)
