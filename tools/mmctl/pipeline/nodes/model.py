"""`{model: NAME, inputs: {...}}`: calls a model of the repository, or another pipeline."""

from __future__ import annotations

from mmctl.diagnostics import nearest
from mmctl.pipeline.findings import UNCALLABLE, UNKNOWN_MODEL
from mmctl.pipeline.graph import ModelCall
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.scope import Callee, Scope


class ModelNode(NodeEntry):
    """A node that calls a model."""

    model: str


def resolve_model(name: str, node: ModelNode, scope: Scope) -> Callee | None:
    """The called model, or None with a finding when none of that name can be called."""
    signature = scope.catalog.get(node.model)
    if signature is None:
        scope.report.add(
            UNKNOWN_MODEL,
            f"`{node.model}` is neither a model that was exported nor a pipeline",
            *("nodes", name, "model"),
            hint=nearest(node.model, scope.catalog),
        )
        return None
    if not signature.outputs:
        scope.report.add(
            UNCALLABLE,
            f"`{node.model}` says no outputs before it is loaded, so a pipeline cannot call it",
            *("nodes", name, "model"),
            hint="call it from the client, before or after the pipeline",
        )
        return None
    return Callee(ModelCall(node.model, signature.max_batch), signature.inputs, signature.outputs)
