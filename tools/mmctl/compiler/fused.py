"""Steps that are the whole of a pipeline -> a model without any call in it."""

from __future__ import annotations

from mmctl.compiler.steps import StepModel, step_model
from mmctl.pipeline.graph import FusedSteps, Graph
from mmctl.triton.repository import GeneratedModel


def to_fused(graph: Graph, steps: FusedSteps, origin: str) -> tuple[GeneratedModel, ...]:
    """The pipeline's own model runs the steps: its tensors have the pipeline's names."""
    shows = {name: steps.shows[wire.tensor] for name, wire in graph.outputs.items()}
    model = StepModel(
        graph.name,
        graph.name,
        FusedSteps(steps.members, shows),
        graph.inputs,
        graph.output_specs(),
        max_batch=graph.max_batch or None,
    )
    return (step_model(model, pipeline_max_batch=graph.max_batch, origin=origin),)
