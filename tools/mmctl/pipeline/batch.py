"""The batch axis: one size for the whole pipeline, which all of its callees can take."""

from __future__ import annotations

from mmctl.pipeline.findings import MAX_BATCH
from mmctl.pipeline.graph import ModelCall, StepCall
from mmctl.pipeline.scope import Scope
from mmctl.pipeline.spec import Spec

STEP_MAX_BATCH = 32
"""What a step takes that says nothing about it."""


def check_batch(spec: Spec, scope: Scope) -> int:
    """How large a batch the pipeline takes; 0 when its models have no batch axis.

    The least of what batched models and steps take, or what `max_batch:` lowers it to. A model
    without batch axis is called row by row where others have one, and a node with `foreach` in
    batches of items: neither sets a limit.
    """
    callees = {
        name: callee
        for name, entry in spec.nodes.items()
        if entry.foreach is None and (callee := scope.callee(name))
    }
    models = {n: c.runs.max_batch for n, c in callees.items() if isinstance(c.runs, ModelCall)}
    steps = {n: c.runs.max_batch for n, c in callees.items() if isinstance(c.runs, StepCall)}
    if models and not any(models.values()):
        _check_unbatched(spec, models, scope)
        return 0
    limits = {name: size for name, size in (*models.items(), *steps.items()) if size}
    least = min(limits, key=lambda name: limits[name], default=None)
    most = limits[least] if least is not None else STEP_MAX_BATCH
    if spec.file.max_batch is None:
        return most
    if least is not None and spec.file.max_batch > most:
        message = f"`max_batch` is {spec.file.max_batch}, but `{least}` takes at most {most}"
        scope.report.add(MAX_BATCH, message, "max_batch", hint=f"write {most} or less")
    return spec.file.max_batch


def _check_unbatched(spec: Spec, models: dict[str, int], scope: Scope) -> None:
    if spec.file.max_batch is not None:
        message = f"`max_batch` is {spec.file.max_batch}, but `{next(iter(models))}` takes no batch"
        scope.report.add(MAX_BATCH, message, "max_batch", hint="remove `max_batch`")
