"""A checked graph -> model folders that Triton can load.

ensemble   the pipeline's own model: names of tensors, copies, order of the steps
steps      a Python step: config, step.json, the shipped runner
shipped/   files that go into the repository as they are
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmctl.compiler.ensemble import to_ensemble
from mmctl.pipeline import Graph, PipelineSource
from mmctl.tensors import Signature
from mmctl.triton.repository import GeneratedModel

__all__ = ["Compiled", "compile_pipeline"]

REASON = "it is a static graph: no policy, no condition, no fan-out"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a pipeline becomes: step models first, its own model last.

    `reason` completes the sentence "`form` because ...".
    """

    form: Literal["ensemble"]
    reason: str
    models: tuple[GeneratedModel, ...]
    signature: Signature


def compile_pipeline(graph: Graph, source: PipelineSource) -> Compiled:
    """Only the ensemble form is built yet; a graph needs no other."""
    models = to_ensemble(graph, origin=source.document.path)
    return Compiled("ensemble", REASON, models, models[-1].signature)
