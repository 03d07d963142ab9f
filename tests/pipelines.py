"""Pipelines as text, and models that exist only as signatures: what tests of the compiler share."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from mmctl.documents import parse_document
from mmctl.pipeline import Asset, Checked, PipelineSource, check_pipeline
from mmctl.pipeline.graph import Graph
from mmctl.pipeline.source import SourceText
from mmctl.tensors import Signature, TensorSpec, parse_type


def signature(
    inputs: Mapping[str, str], outputs: Mapping[str, str], max_batch: int = 8
) -> Signature:
    """Names ending in `?` are optional inputs."""
    return Signature(
        tuple(TensorSpec(n.rstrip("?"), parse_type(t), n.endswith("?")) for n, t in inputs.items()),
        tuple(TensorSpec(name, parse_type(text)) for name, text in outputs.items()),
        max_batch,
    )


MODELS = {
    "encoder": signature(
        {"input_ids": "int64[-1]", "attention_mask": "int64[-1]"}, {"embedding": "fp32[4]"}, 16
    ),
    "head": signature({"embedding": "fp32[4]"}, {"probs": "fp32[2]", "score": "fp32"}),
    "double": signature({"x": "fp32"}, {"y": "fp32"}),
    "speller": signature({"text": "string", "hint?": "string"}, {"text": "string"}),
    "lac": signature({"x": "int64[-1,-1]"}, {"tags": "int64[-1,-1]"}, max_batch=0),
    "foreign": signature({"input/0": "fp32"}, {"4195": "fp32"}),
}


def source(
    text: str,
    *,
    steps: str | None = None,
    modules: Mapping[str, str] | None = None,
    common: Mapping[str, str] | None = None,
    assets: Mapping[str, Asset] | None = None,
    requirements: str = "",
    name: str = "demo",
) -> PipelineSource:
    """A pipeline `demo` in ensembles/demo, without a disk."""
    own = {**(modules or {}), **({} if steps is None else {"steps": steps})}
    folder = f"ensembles/{name}"
    return PipelineSource(
        name,
        parse_document(textwrap.dedent(text).lstrip("\n"), f"{folder}/pipeline.yaml"),
        {n: SourceText(f"{folder}/{n}.py", textwrap.dedent(t)) for n, t in own.items()},
        {n: SourceText(f"ensembles/common/{n}.py", t) for n, t in (common or {}).items()},
        assets or {},
        requirements,
    )


def checked(
    text: str, *, steps: str | None = None, instances: Mapping[str, int] | None = None
) -> Checked:
    return check_pipeline(source(text, steps=steps), MODELS, instances or {})


def graph_of(pipeline: PipelineSource, models: Mapping[str, Signature] = MODELS) -> Graph:
    """The graph of a pipeline that must be right."""
    result = check_pipeline(pipeline, models)
    assert result.graph is not None, "\n".join(f.text() for f in result.findings)
    return result.graph


def lines(result: Checked) -> list[str]:
    """`line:column CODE message` of each finding in pipeline.yaml; others with their file."""
    shown = []
    for finding in result.findings:
        file = "" if finding.path.endswith("pipeline.yaml") else f"{finding.path.split('/')[-1]}:"
        shown.append(f"{file}{finding.line}:{finding.column} {finding.code} {finding.message}")
    return shown
