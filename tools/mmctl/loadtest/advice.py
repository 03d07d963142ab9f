"""What a pipeline's author could change: edges that make nodes wait for nothing, and what the
pipeline without them would take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mmctl.building.catalog import read_catalog
from mmctl.building.compiled import oldest_release, plan_pipelines
from mmctl.compiler import Compiled, compile_pipeline
from mmctl.documents import parse_document
from mmctl.errors import MmctlError
from mmctl.files import read_text
from mmctl.pipeline import check_pipeline
from mmctl.pipeline.needless import Needless, needless_edges, rewired
from mmctl.tensors import Signature
from mmctl.trace.critical_path import Change, Edges
from mmctl.trace.edges import Waits, waits_of_ensemble, waits_of_plan
from mmctl.trace.spans import Span
from mmctl.trace.summary import saved
from mmctl.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Advice:
    """`text` is pipeline.yaml without the needless edges that can be left out, `before` as it is.
    `saves_p50` and `saves_p95` in ms, predicted from the traces; None where it becomes other
    models than those that were traced.
    """

    edges: tuple[Needless, ...]
    before: str
    text: str
    saves_p50: float | None = None
    saves_p95: float | None = None


def advise(
    workspace: Workspace, pipeline: str, roots: Sequence[Span], edges: Edges
) -> Advice | None:
    """None for what is no pipeline of the workspace, or has no such edge. Raises as a build."""
    if pipeline not in workspace.pipeline_names():
        return None
    catalog = read_catalog(workspace)
    planned = {p.source.name: p for p in plan_pipelines(workspace, catalog, [pipeline])}
    source = planned[pipeline].source
    found = needless_edges(planned[pipeline].graph, source)
    if not found:
        return None
    path = workspace.pipelines / pipeline / "pipeline.yaml"
    before = read_text(path)
    text = rewired(before, found, source)
    without = Advice(found, before, text)
    if text == before:
        return without
    changed = replace(source, document=parse_document(text, source.document.path))
    signatures: dict[str, Signature] = {
        **catalog.signatures,
        **{name: p.compiled.signature for name, p in planned.items()},
    }
    graph = check_pipeline(changed, signatures, catalog.instances).graph
    if graph is None:
        return without
    try:
        release = oldest_release(workspace)
        compiled = compile_pipeline(graph, changed, release, catalog.onnx)
    except MmctlError:
        return without
    return _predicted(without, pipeline, compiled, roots, edges)


def _predicted(
    advice: Advice, pipeline: str, compiled: Compiled, roots: Sequence[Span], edges: Edges
) -> Advice:
    waits = _waits_of(compiled)
    traced = {
        child.model
        for root in roots
        for span in root.walk()
        if span.model == pipeline
        for child in span.children
    }
    if not traced <= set(waits):
        return advice
    new: Mapping[str, Waits] = {**{name: dict(w) for name, w in edges.items()}, pipeline: waits}
    p50, p95 = saved(roots, Change(edges=new), edges)
    return replace(advice, saves_p50=p50, saves_p95=p95)


def _waits_of(compiled: Compiled) -> Waits:
    model = compiled.models[-1]
    if "plan.json" in model.plans:
        return waits_of_plan(model.plans["plan.json"])
    return waits_of_ensemble(next(iter(model.configs.values())).steps)
