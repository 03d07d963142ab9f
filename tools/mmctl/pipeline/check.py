"""The type check: a pipeline and the signatures of what it calls -> findings, or a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mmctl.diagnostics import Finding, Severity
from mmctl.pipeline.batch import check_batch
from mmctl.pipeline.findings import NAME, Report
from mmctl.pipeline.graph import Graph, Node, Wire
from mmctl.pipeline.names import check_node_name, check_tensor_name, read_types
from mmctl.pipeline.nodes import KINDS
from mmctl.pipeline.order import order_of
from mmctl.pipeline.policies import check_pipeline_policies, check_policies
from mmctl.pipeline.reach import check_circles, check_reach, needs_of
from mmctl.pipeline.scope import Scope, parse_reference
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


def check_pipeline(source: PipelineSource, catalog: Mapping[str, Signature]) -> Checked:
    """Type a whole pipeline; all mistakes at once, in the order of the file.

    `catalog` has the signature of everything that can be called: models, foreign models,
    pipelines that are compiled already.
    """
    report = Report(source.document)
    spec = read_spec(report)
    graph = _check(spec, source, catalog, report) if spec else None
    findings = tuple(sorted(dict.fromkeys(report.findings), key=_place))
    failed = any(finding.severity is Severity.ERROR for finding in findings)
    return Checked(findings, None if failed else graph, tuple(source.calls()))


def _place(finding: Finding) -> tuple[str, int, int, str]:
    return (finding.path, finding.line, finding.column, finding.code)


def _check(
    spec: Spec, source: PipelineSource, catalog: Mapping[str, Signature], report: Report
) -> Graph | None:
    scope = Scope(
        source=source,
        catalog=catalog,
        report=report,
        step_files=StepFiles(source, report),
        inputs=read_types(report, spec.file.inputs, "inputs"),
        known_nodes=frozenset(spec.file.nodes),
    )
    order = order_of(needs_of(spec))
    for name in order.names:
        scope.callees[name] = KINDS[spec.kinds[name]].resolve(name, spec.nodes[name], scope)
    _check_names(spec, source, report)
    check_pipeline_policies(spec.file, scope)
    for name, node in spec.nodes.items():
        check_inputs(name, node, scope)
        check_policies(name, node, scope)
    outputs = check_outputs(spec.file, scope)
    check_circles(order.circles, spec, report)
    check_reach(spec, report)
    max_batch = check_batch(spec, scope)
    if order.circles or not spec.is_whole:
        return None
    return _graph(spec, scope, order.names, outputs, max_batch)


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


def _graph(
    spec: Spec, scope: Scope, order: list[str], outputs: Mapping[str, Wire], max_batch: int
) -> Graph | None:
    nodes = {node.name: node for node in _nodes(spec, scope)}
    if len(nodes) < len(spec.nodes) or len(outputs) < len(spec.file.outputs):
        return None
    inputs = tuple(TensorSpec(name, kind) for name, kind in scope.inputs.items() if kind)
    ordered = tuple(nodes[name] for name in order)
    return Graph(scope.source.name, inputs, outputs, ordered, max_batch)


def _nodes(spec: Spec, scope: Scope) -> Iterator[Node]:
    for name, entry in spec.nodes.items():
        callee = scope.callee(name)
        if callee is not None:
            wires = {
                key.removesuffix("?"): parse_reference(text) for key, text in entry.inputs.items()
            }
            yield Node(name, callee.runs, wires, callee.takes, callee.gives)
