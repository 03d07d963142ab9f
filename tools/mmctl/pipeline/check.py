"""The type check: a pipeline and the signatures of what it calls -> findings, or a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mmctl.diagnostics import Finding, Severity, in_order
from mmctl.pipeline.absence import check_absence
from mmctl.pipeline.batch import check_batch
from mmctl.pipeline.caching import check_cache, check_cache_bytes
from mmctl.pipeline.conditions import Conditions, check_conditions, read_conditions
from mmctl.pipeline.findings import NAME, Report
from mmctl.pipeline.graph import Graph, Node, Policy
from mmctl.pipeline.lists import check_foreach, check_pipeline_lists
from mmctl.pipeline.names import check_node_name, check_tensor_name, read_types
from mmctl.pipeline.nodes import KINDS
from mmctl.pipeline.order import order_of
from mmctl.pipeline.policies import check_times, read_policy, read_rules
from mmctl.pipeline.reach import check_circles, check_reach, needs_of, read_tensors
from mmctl.pipeline.scope import Callee, Scope, parse_reference
from mmctl.pipeline.source import PipelineSource
from mmctl.pipeline.spec import Spec, read_spec
from mmctl.pipeline.stepfile import StepFiles
from mmctl.pipeline.wiring import check_inputs, check_outputs
from mmctl.tensors import Signature, TensorSpec


@dataclass(frozen=True, slots=True)
class Checked:
    """`graph` is None when a finding is an error. `calls`: the models called, each once."""

    findings: tuple[Finding, ...]
    graph: Graph | None
    calls: tuple[str, ...]


NOT_KNOWN: Mapping[str, int] = {}
NO_DOUBT: Mapping[str, str] = {}


def check_pipeline(
    source: PipelineSource,
    catalog: Mapping[str, Signature],
    instances: Mapping[str, int] = NOT_KNOWN,
    doubts: Mapping[str, str] = NO_DOUBT,
) -> Checked:
    """Type a whole pipeline; all mistakes at once, in the order of the file.

    `catalog` has the signature of everything that can be called: models, foreign models,
    pipelines that are compiled already. `instances`: how many copies of a model run on CPUs,
    for those where that is known. `doubts`: models whose answers cannot be kept, and why (see
    caching.doubt_of).
    """
    report = Report(source.document)
    spec = read_spec(report)
    graph = None
    if spec is not None:
        scope = Scope(
            source=source,
            catalog=catalog,
            report=report,
            step_files=StepFiles(source, report),
            inputs=read_types(report, spec.file.inputs, "inputs"),
            known_nodes=frozenset(spec.file.nodes),
            instances=instances,
            doubts=doubts,
        )
        graph = _check(spec, scope)
    findings = in_order(report.findings)
    failed = any(finding.severity is Severity.ERROR for finding in findings)
    return Checked(findings, None if failed else graph, tuple(source.calls()))


def _check(spec: Spec, scope: Scope) -> Graph | None:
    report = scope.report
    conditions = read_conditions(spec.nodes, report)
    order = order_of(needs_of(spec, conditions))
    for name in order.names:
        scope.callees[name] = _resolve(name, spec, scope)
    _check_names(spec, scope.source, report)
    rules = read_rules(spec.file, scope)
    for name, node in spec.nodes.items():
        check_inputs(name, node, scope)
        check_foreach(name, node, scope)
        check_times(name, node, rules.deadline_ms, scope)
        check_cache(name, node, scope)
    check_cache_bytes(spec, report)
    check_conditions(conditions, scope)
    outputs = check_outputs(spec.file, scope)
    check_pipeline_lists(scope, outputs)
    policies = _policies(spec, conditions, scope)
    check_absence(spec, order.names, outputs, conditions, scope)
    check_circles(order.circles, spec, conditions, report)
    check_reach(spec, conditions, report)
    max_batch = check_batch(spec, scope)
    nodes = {node.name: node for node in _nodes(spec, policies, scope)}
    if order.circles or len(nodes) < len(spec.file.nodes) or len(outputs) < len(spec.file.outputs):
        return None
    inputs = tuple(TensorSpec(name, kind) for name, kind in scope.inputs.items() if kind)
    ordered = tuple(nodes[name] for name in order.names)
    return Graph(scope.source.name, inputs, outputs, ordered, max_batch, rules)


def _resolve(name: str, spec: Spec, scope: Scope) -> Callee | None:
    node = spec.nodes[name]
    callee = KINDS[spec.kinds[name]].resolve(name, node, scope)
    return replace(callee, foreach=node.foreach is not None) if callee else None


def _policies(spec: Spec, conditions: Conditions, scope: Scope) -> dict[str, Policy]:
    read: dict[str, set[str]] = {name: set() for name in spec.nodes}
    for wire in read_tensors(spec, conditions):
        read.setdefault(wire.node, set()).add(wire.tensor)
    return {
        name: read_policy(name, node, read[name], conditions, scope)
        for name, node in spec.nodes.items()
    }


def _check_names(spec: Spec, source: PipelineSource, report: Report) -> None:
    if spec.file.pipeline != source.name:
        report.add(
            NAME,
            f"the pipeline is called `{spec.file.pipeline}`, its folder `{source.name}`",
            "pipeline",
            hint="give both one name",
        )
    for name in spec.file.nodes:
        check_node_name(report, name)
    for name in spec.file.outputs:
        check_tensor_name(report, name, "outputs", name)
        if name in spec.file.inputs:
            message = f"`{name}` is an input too: Triton keeps both under one name"
            report.add_key(NAME, message, "outputs", name, hint=f"call it `{name}_out`, say")


def _nodes(spec: Spec, policies: Mapping[str, Policy], scope: Scope) -> Iterator[Node]:
    for name, entry in spec.nodes.items():
        callee = scope.callee(name)
        if callee is not None:
            wires = {
                key.removesuffix("?"): parse_reference(text) for key, text in entry.inputs.items()
            }
            yield Node(name, callee.runs, wires, callee.takes, callee.gives, policies[name])
