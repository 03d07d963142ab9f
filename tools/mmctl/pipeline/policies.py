"""Policies of nodes and rules of the pipeline: what is written -> what the graph says."""

from __future__ import annotations

from collections.abc import Collection

from mmctl.diagnostics import nearest
from mmctl.documents import Key
from mmctl.pipeline.conditions import Conditions
from mmctl.pipeline.defaults import FAIL, read_defaults
from mmctl.pipeline.findings import FUSE, IDLE_POLICY, NAME, POLICY
from mmctl.pipeline.graph import ModelCall, Policy, Quorum, Rules, StepCall
from mmctl.pipeline.nodes.base import NodeEntry, QuorumEntry
from mmctl.pipeline.nodes.switch import SwitchNode
from mmctl.pipeline.scope import Scope, parse_reference
from mmctl.pipeline.spec import PipelineFile

PROVENANCE = "provenance"
"""The output that `provenance: true` adds."""


def read_rules(file: PipelineFile, scope: Scope) -> Rules:
    """What the pipeline says about itself, with a finding for what cannot be."""
    for index, name in enumerate(file.fuse) if file.fuse != "auto" else ():
        if name in file.fuse[:index]:
            scope.report.add(FUSE, f"`fuse` names `{name}` twice", "fuse", index)
        elif name not in scope.known_nodes:
            hint = nearest(name, scope.known_nodes)
            message = f"`fuse` names `{name}`, which is no node"
            scope.report.add(FUSE, message, "fuse", index, hint=hint)
    for key, names in {"inputs": file.inputs, "outputs": file.outputs}.items():
        if file.provenance and PROVENANCE in names:
            message = f"`{PROVENANCE}` is what `provenance: true` adds as an output"
            scope.report.add_key(NAME, message, key, PROVENANCE, hint="give this another name")
    return Rules(
        form=file.form,
        fuse=file.fuse,
        deadline_ms=file.deadline_ms,
        max_pending=file.max_pending,
        provenance=file.provenance,
        cache_bytes=file.cache_bytes,
    )


def read_policy(
    name: str, node: NodeEntry, read: Collection[str], conditions: Conditions, scope: Scope
) -> Policy:
    """What may happen to a node, with a finding for what cannot. `read`: outputs with readers."""
    if isinstance(node, SwitchNode):
        node = SwitchNode(switch=node.switch, on_error=node.on_error, required=node.required)
    _check_required(name, node, scope)
    _check_after(name, node, scope)
    if node.quorum is not None:
        _check_quorum(name, node, node.quorum, scope)
        _check_quorum_waits(name, node, node.quorum, conditions, scope)
    guard = conditions.guards.get(name)
    return Policy(
        timeout_ms=node.timeout_ms,
        retries=node.retries,
        on_error=read_defaults(name, node, read, scope),
        required=node.required,
        hedge_ms=node.hedge_ms,
        quorum=Quorum(node.quorum.need, node.quorum.of) if node.quorum else None,
        when=guard.condition if guard else None,
        foreach=parse_reference(node.foreach) if node.foreach is not None else None,
        after=tuple(dict.fromkeys(node.after)),
        max_in_flight=node.max_in_flight,
        cache=node.cache.ttl_s if node.cache else None,
    )


def check_times(name: str, node: NodeEntry, deadline_ms: float | None, scope: Scope) -> None:
    """Remarks about times that do nothing."""
    place = ("nodes", name)
    limit, hedge = node.timeout_ms, node.hedge_ms
    if limit is not None and deadline_ms is not None and limit > deadline_ms:
        message = f"`{name}.timeout_ms` is {limit:g}, but `deadline_ms` is {deadline_ms:g}"
        scope.report.add(
            IDLE_POLICY, message, *place, "timeout_ms", hint="the deadline comes first"
        )
    if hedge is None:
        return
    if limit is not None and hedge >= limit:
        message = (
            f"`{name}.hedge_ms` is {hedge:g}, but `timeout_ms` is {limit:g}: no call is hedged"
        )
        scope.report.add(IDLE_POLICY, message, *place, "hedge_ms", hint="write less")
    if _instances(name, scope) == 1:
        message = f"`{name}.hedge_ms`: what it calls has one instance, so a second call waits too"
        hint = "raise `instances`, or remove `hedge_ms`"
        scope.report.add(IDLE_POLICY, message, *place, "hedge_ms", hint=hint)


def _instances(name: str, scope: Scope) -> int | None:
    """How many copies of the callee run without a GPU; None when that is not known."""
    callee = scope.callee(name)
    match callee.runs if callee else None:
        case ModelCall(model=model):
            return scope.instances.get(model)
        case StepCall(instances=instances):
            return instances.cpu or 1
    return None


def _check_required(name: str, node: NodeEntry, scope: Scope) -> None:
    if not node.required and node.on_error != FAIL:
        message = f"`{name}` has `on_error`, so it never lacks: `required: false` says it may"
        hint = "keep one of the two"
        scope.report.add(POLICY, message, "nodes", name, "required", hint=hint)


def _check_after(name: str, node: NodeEntry, scope: Scope) -> None:
    for index, other in enumerate(node.after):
        place = ("nodes", name, "after", index)
        if other == name:
            scope.report.add(POLICY, f"`{name}.after` names the node itself", *place)
        elif other not in scope.known_nodes:
            message = f"`{name}.after` names `{other}`, which is no node"
            scope.report.add(POLICY, message, *place, hint=nearest(other, scope.known_nodes))


def _check_quorum(name: str, node: NodeEntry, quorum: QuorumEntry, scope: Scope) -> None:
    place = ("nodes", name, "quorum")
    if quorum.need > len(quorum.of):
        message = f"`{name}.quorum` needs {quorum.need} of {len(quorum.of)}"
        scope.report.add(POLICY, message, *place, "need")
    for index, other in enumerate(quorum.of):
        if problem := _wrong_member(name, node, other, quorum.of[:index], scope):
            scope.report.add(POLICY, problem[0], *place, "of", index, hint=problem[1])


def _check_quorum_waits(
    name: str, node: NodeEntry, quorum: QuorumEntry, conditions: Conditions, scope: Scope
) -> None:
    """A node that is gone on without may still be under way: nothing else can wait for it."""
    without = f"`{name}.quorum` goes on without"
    found: list[tuple[str, str, tuple[Key, ...]]] = [
        (other, f"`{name}.after` names `{other}`, which {without}", ("nodes", name, "after", index))
        for index, other in enumerate(node.after)
    ]
    guard = conditions.guards.get(name)
    for clause in guard.clauses if guard else ():
        for other in dict.fromkeys(reference.wire.node for reference in clause.references):
            message = f"`{name}` rests on `{clause.text}`, but {without} `{other}`"
            found.append((other, message, clause.place))
    for other, message, place in found:
        if other in quorum.of:
            hint = f"take `{other}` out of the quorum, or leave this out"
            scope.report.add(POLICY, message, *place, hint=hint)


def _wrong_member(
    name: str, node: NodeEntry, other: str, before: tuple[str, ...], scope: Scope
) -> tuple[str, str | None] | None:
    """Why a node cannot be in a quorum, and a hint."""
    if other in before:
        return f"`{name}.quorum` names `{other}` twice", None
    if other not in scope.known_nodes:
        hint = nearest(other, scope.known_nodes)
        return f"`{name}.quorum` names `{other}`, which is no node", hint
    keys = [key for key, text in node.inputs.items() if parse_reference(text).node == other]
    if not keys:
        hint = f'wire it to an input that may be absent, such as "{other}?"'
        return f"`{name}.quorum` names `{other}`, which does not feed `{name}`", hint
    for key in keys:
        if not scope.may_lack(name, key):
            hint = f'write "{key}?", which is None where the quorum goes on without it'
            return f"`{name}.quorum` names `{other}`, which `{name}.{key}` cannot do without", hint
    return None
