"""Repositories made from pipelines as text, for tests of real servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines import graph_of

from mmctl.compiler import compile_pipeline
from mmctl.files import write_bytes, write_text
from mmctl.pipeline import PipelineSource
from mmctl.tensors import Signature
from mmctl.triton.pbtxt import render_config
from mmctl.triton.releases import Release
from mmctl.triton.repository import GeneratedModel


def write_pipelines(
    repository: Path,
    pipelines: Sequence[PipelineSource],
    models: Mapping[str, Signature],
    release: Release | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Compile pipelines, callees first, into version 1 of their models; unpinned."""
    known = dict(models)
    for pipeline in pipelines:
        compiled = compile_pipeline(graph_of(pipeline, known), pipeline, release)
        known[pipeline.name] = compiled.signature
        for model in compiled.models:
            write_generated(repository, model.pinned({}, digests or {}))


def write_generated(repository: Path, model: GeneratedModel) -> None:
    for path, config in model.configs.items():
        write_text(repository / model.name / path, render_config(config))
    (repository / model.name / "1").mkdir()
    for path, content in model.files.items():
        write_bytes(repository / model.name / "1" / path, content)


def write_python_model(repository: Path, name: str, config: str, code: str) -> None:
    """A model of the user's own; `config` without name and backend."""
    text = f'name: "{name}" backend: "python"\n{config}'
    write_text(repository / name / "config.pbtxt", text)
    write_text(repository / name / "1" / "model.py", code)
