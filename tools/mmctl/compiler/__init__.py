"""A checked graph -> model folders that Triton can load.

merge, fuse    graph -> graph: nodes that become one
rows           graph -> graph: an input for steps that may lack all others
merged         ONNX models that are one: the node, the folder, the recipe of its file
choose         the form: the cheapest that keeps what the pipeline declares
ensemble       the pipeline's own model: names of tensors, copies, order of the steps
bls            the pipeline's own model: plan.json for the shipped runner
fused          the pipeline's own model is its steps
steps          Python steps: config, step.json, the shipped runner
shipped/       files that go into the repository as they are
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmctl.compiler.bls import to_bls, wrong_tensors
from mmctl.compiler.choose import Impossible, choose_form, one_step
from mmctl.compiler.ensemble import to_ensemble
from mmctl.compiler.fuse import fuse_steps
from mmctl.compiler.fused import to_fused
from mmctl.compiler.merge import merge_models
from mmctl.compiler.merged import OnnxModel, merged_models
from mmctl.compiler.rows import with_rows
from mmctl.diagnostics import Finding
from mmctl.documents import Key
from mmctl.errors import InvalidFiles
from mmctl.pipeline import Graph, PipelineSource
from mmctl.pipeline.findings import ASYNC, FORM, FUSE, Report
from mmctl.pipeline.graph import Form
from mmctl.tensors import Signature
from mmctl.triton.releases import EMBEDDED, Release, parse_release
from mmctl.triton.repository import GeneratedModel

__all__ = ["Compiled", "compile_pipeline"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a pipeline becomes: step models first, its own model last.

    `reason` completes the sentence "`form` because ...". `graph` is what was compiled: nodes that
    became one are one, and a step may have an input of the compiler's.
    """

    form: Form
    reason: str
    models: tuple[GeneratedModel, ...]
    signature: Signature
    graph: Graph
    warnings: tuple[Finding, ...] = ()

    @property
    def calls_at_once(self) -> int:
        """How many calls one instance may have under way: 0 for forms without calls of its own."""
        plan = self.models[-1].plans.get("plan.json", {"nodes": []})
        return sum(node.get("max_in_flight", 0) for node in plan["nodes"])


def compile_pipeline(
    graph: Graph,
    source: PipelineSource,
    release: Release | None = None,
    onnx: Mapping[str, OnnxModel] = {},
) -> Compiled:
    """`release` is the oldest Triton that shall serve it; `onnx` are the models that `fuse:` may
    merge. Raises InvalidFiles when a pinned form cannot keep the declaration, or when nodes that
    `fuse:` names cannot be one.
    """
    release = release or parse_release(EMBEDDED)
    origin = source.document.path
    graph = _fused(graph, source, onnx)
    choice = choose_form(graph)
    if isinstance(choice, Impossible):
        raise _refused(source, FORM, choice.reason, choice.hint, "form")
    warnings: tuple[Finding, ...] = ()
    match choice.form:
        case "fused":
            steps = one_step(graph)
            assert steps is not None
            models = to_fused(graph, steps, origin)
        case "ensemble":
            models = to_ensemble(graph, origin)
        case "bls":
            _refuse_bf16(graph, source)
            graph = with_rows(graph)
            models = to_bls(graph, origin, release)
            warnings = _warnings(source, release)
    models = (*merged_models(graph, origin), *models)
    signature = models[-1].signature
    return Compiled(choice.form, choice.reason, models, signature, graph, warnings)


def _fused(graph: Graph, source: PipelineSource, onnx: Mapping[str, OnnxModel]) -> Graph:
    """A pinned ensemble or bls is built as it is written, but for nodes that `fuse:` names."""
    if graph.rules.form in ("ensemble", "bls") and not graph.rules.fuse:
        return graph
    try:
        return fuse_steps(merge_models(graph, onnx))
    except ValueError as error:
        raise _refused(source, FUSE, str(error), None, "fuse") from error


def _refuse_bf16(graph: Graph, source: PipelineSource) -> None:
    for wire in wrong_tensors(graph):
        what = f"`{wire}`" if wire.node else f"the input `{wire}`"
        place = ("nodes", wire.node) if wire.node else ("inputs", wire.tensor)
        hint = "let the model give it as fp32" if wire.node else "take it as fp32"
        message = f"{what} is bf16, which the bls form cannot carry: numpy has none"
        raise _refused(source, FORM, message, hint, *place)


def _warnings(source: PipelineSource, release: Release) -> tuple[Finding, ...]:
    if release.decoupled_sender_in_default_mode:
        return ()
    report = Report(source.document)
    message = (
        f"`{source.name}` needs the bls form, in which Triton {release} serves one request at a "
        "time per instance"
    )
    report.add(ASYNC, message, "pipeline", hint="with 24.06 or newer they run side by side")
    return tuple(report.findings)


def _refused(
    source: PipelineSource, code: str, message: str, hint: str | None, *location: Key
) -> InvalidFiles:
    report = Report(source.document)
    report.add(code, message, *location, hint=hint)
    return InvalidFiles(report.findings)
