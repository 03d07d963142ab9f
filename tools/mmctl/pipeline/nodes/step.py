"""`{step: NAME}` runs a function of steps.py, `{step: {use: NAME, ...}}` a ready-made one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from mmctl.diagnostics import nearest
from mmctl.documents import Flag, load_entry
from mmctl.errors import InvalidFiles
from mmctl.pipeline.findings import (
    READY_OPTIONS,
    READY_UNKNOWN,
    STEP_OUTPUTS,
    STEP_SETTING,
)
from mmctl.pipeline.graph import StepCall
from mmctl.pipeline.names import check_tensor_name, read_types
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.ready import READY, ReadyOptions
from mmctl.pipeline.scope import Callee, Scope, parse_reference
from mmctl.pipeline.source import Asset
from mmctl.pipeline.stepcheck import check_function
from mmctl.pipeline.stepfile import STEPS
from mmctl.tensors import DType, TensorSpec, TensorType
from mmctl.triton.options import Batching, Instances

UNKNOWN_TYPE = TensorType(DType.STRING)
"""Stands for the type of an input that cannot be told: its finding lies elsewhere."""


class StepNode(NodeEntry):
    """A node that runs Python. `inputs` may have `x?`, which is None when its producer was
    skipped. `batch: false` means a function of one row, without batch axis.
    """

    step: Any
    outputs: dict[str, str] = Field(default_factory=dict)
    instances: Instances = Instances()
    batching: Batching | None = None
    batch: Flag = True


def resolve_step(name: str, node: StepNode, scope: Scope) -> Callee | None:
    """What the step takes and gives, or None with a finding when it is not a step."""
    match node.step:
        case str() as function:
            callee = _own_step(name, node, function, scope)
        case {"use": str() as kind} if kind in READY:
            callee = _ready_step(name, node, kind, scope)
        case {"use": str() as kind}:
            location = ("nodes", name, "step", "use")
            message = f"there is no ready-made step `{kind}`"
            scope.report.add(READY_UNKNOWN, message, *location, hint=nearest(kind, READY))
            return None
        case _:
            message = "`step` is the name of a function, or {use: NAME, ...} for a ready-made one"
            scope.report.add(READY_UNKNOWN, message, "nodes", name, "step")
            return None
    _check_settings(name, node, scope)
    return callee if callee is not None and _is_in_numpy(name, callee, scope) else None


def fed_types(node: StepNode, scope: Scope) -> dict[str, TensorType | None]:
    """Types by input, of what feeds the node; None where that is not known.

    Of a list tensor only a step of the user's sees more than one item, and only without `foreach`.
    """
    whole = isinstance(node.step, str) and node.foreach is None
    found = {}
    for key, text in node.inputs.items():
        kind = scope.type_of(parse_reference(text))
        found[key.removesuffix("?")] = kind if kind is None or whole else replace(kind, items=False)
    return found


def _own_step(name: str, node: StepNode, function: str, scope: Scope) -> Callee | None:
    types = read_types(scope.report, node.outputs, "nodes", name, "outputs")
    if not types:
        scope.report.add_key(
            STEP_OUTPUTS,
            f"`{name}` declares no outputs",
            *("nodes", name),
            hint="say what the function returns: outputs: {label: string}",
        )
    for key in node.inputs:
        check_tensor_name(scope.report, key.removesuffix("?"), "nodes", name, "inputs", key)
    check_function(name, function, node.inputs, node.outputs, scope)
    gives = tuple(TensorSpec(key, kind) for key, kind in types.items() if kind is not None)
    if not gives or len(gives) < len(types):
        return None
    takes = tuple(
        TensorSpec(key, kind or UNKNOWN_TYPE, optional=f"{key}?" in node.inputs)
        for key, kind in fed_types(node, scope).items()
    )
    runs = StepCall(
        STEPS,
        function,
        rows=not node.batch,
        sources=scope.step_files.shipped(),
        assets={f"assets/{key}": asset for key, asset in scope.source.assets.items()},
        requirements=scope.source.requirements,
    )
    return Callee(replace(runs, **_settings(node)), takes, gives)


def _ready_step(name: str, node: StepNode, kind: str, scope: Scope) -> Callee | None:
    ready = READY[kind]
    place = ("nodes", name, "step")
    if node.outputs:
        message = f"the outputs of `{kind}` are its own: leave `outputs` out"
        scope.report.add_key(STEP_OUTPUTS, message, "nodes", name, "outputs")
    try:
        options = load_entry(ready.options, scope.report.document, *place)
        types = ready.types(options, fed_types(node, scope), scope.source.assets)
    except InvalidFiles as error:
        scope.report.findings += error.findings
        return None
    except ValueError as error:
        scope.report.add(READY_OPTIONS, f"`{kind}`: {error}", *place)
        return None
    assets = _assets_of(name, options, scope)
    if types is None:
        return None
    values = options.model_dump(mode="json", exclude={"use"})
    runs = StepCall(
        f"ready_{kind}",
        "make",
        options={**values, **{field: path for field, (path, _) in assets.items()}},
        join=ready.join,
        assets=dict(assets.values()),
    )
    return Callee(replace(runs, **_settings(node)), *types)


def _assets_of(name: str, options: ReadyOptions, scope: Scope) -> dict[str, tuple[str, Asset]]:
    """Option that names a file -> path inside the version folder, and the file."""
    found = {}
    for field in options.FILES:
        text = getattr(options, field)
        asset = scope.asset(text, "nodes", name, "step", field) if text else None
        if asset is not None:
            found[field] = (f"assets/{asset.name}", asset)
    return found


def _settings(node: StepNode) -> Mapping[str, Any]:
    """Fields of StepCall that say how a step is served."""
    batching = node.batching or Batching()
    said = "max_batch" in batching.model_fields_set
    return {
        "batching": batching,
        "max_batch": batching.max_batch if said else None,
        "instances": node.instances,
    }


def _check_settings(name: str, node: StepNode, scope: Scope) -> None:
    if node.batching is not None and node.batching.max_batch == 0:
        scope.report.add(
            STEP_SETTING,
            "a step keeps its batch axis",
            *("nodes", name, "batching"),
            hint="for a function of one row write `batch: false`",
        )
    if not node.batch and isinstance(node.step, dict):
        message = "a ready-made step works on whole batches: leave `batch` out"
        scope.report.add(STEP_SETTING, message, "nodes", name, "batch")


def _is_in_numpy(name: str, callee: Callee, scope: Scope) -> bool:
    """False with a finding when the step takes or gives what numpy does not have."""
    odd = [s for s in (*callee.takes, *callee.gives) if s.type.dtype is DType.BF16]
    for spec in odd:
        message = f"`{name}.{spec.name}` is bf16, which numpy does not have"
        scope.report.add_key(STEP_SETTING, message, "nodes", name, hint="use fp32")
    return not odd
