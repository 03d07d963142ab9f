"""ONNX models that are to be one -> the node that stands for them, and its folder. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmctl.compiler.regroup import wires_of
from mmctl.files import digest_of
from mmctl.pipeline.graph import Graph, MergedModels, ModelCall, Node, Wire
from mmctl.tensors import Signature, TensorSpec, TensorType
from mmctl.triton.generate import ONNX, configs_for
from mmctl.triton.options import Batching, ServingOptions
from mmctl.triton.recipe import MergeMember, MergeRecipe, Port
from mmctl.triton.repository import GeneratedModel

Group = tuple[Node, ...]
"""Nodes that are to be one, in the order of the graph."""
SERVED_ALIKE = ("instances", "optimization", "parameters")
"""Options that must be equal: one model has one of each."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A model that mmctl exported to ONNX: how it is served, how far it may be off its source."""

    options: ServingOptions
    tolerance: float


def merged_models(graph: Graph, origin: str) -> tuple[GeneratedModel, ...]:
    """The folders of the merged models; building makes their model.onnx."""
    found = []
    for node in graph.nodes:
        if isinstance(call := node.runs, MergedModels):
            signature = Signature(node.takes, node.gives, call.max_batch)
            model = GeneratedModel(
                name=call.model,
                configs=configs_for(call.model, signature, ONNX, call.options),
                signature=signature,
                origin=origin,
                own_key=digest_of(call.recipe.wiring),
                merge=call.recipe,
            )
            found.append(model)
    return tuple(found)


def models_of(group: Sequence[Node], onnx: Mapping[str, OnnxModel]) -> list[OnnxModel]:
    return [onnx[node.runs.model] for node in group if isinstance(node.runs, ModelCall)]


def kept_wires(graph: Graph, group: Group) -> list[Wire]:
    """Tensors of the group that others read, in the order in which its models give them."""
    inside = {node.name for node in group}
    read = set(graph.outputs.values())
    read.update(*(wires_of(node) for node in graph.nodes if node.name not in inside))
    wires = [Wire(node.name, spec.name) for node in group for spec in node.gives]
    return [wire for wire in wires if wire in read]


def merged_node(
    graph: Graph, group: Group, onnx: Mapping[str, OnnxModel]
) -> tuple[Node, dict[str, Wire]]:
    """The node that stands for the group, and which tensor each of its outputs is."""
    last = group[-1].name
    shown = {
        wire.tensor if wire.node == last else f"{wire.node}__{wire.tensor}": wire
        for wire in kept_wires(graph, group)
    }
    types = {Wire(node.name, spec.name): spec.type for node in group for spec in node.gives}
    outer = _outer(group, shown)
    models = models_of(group, onnx)
    most = min(node.runs.max_batch for node in group if isinstance(node.runs, ModelCall))
    recipe = MergeRecipe(
        tuple(_member(node, outer, types) for node in group),
        {name: (wire.node, wire.tensor) for name, wire in shown.items()},
        max(model.tolerance for model in models),
    )
    node = Node(
        name=last,
        runs=MergedModels(f"{graph.name}__{last}", most, recipe, _options(models, most)),
        inputs={name: wire for (wire, _), name in outer.items()},
        takes=tuple(TensorSpec(name, kind) for (_, kind), name in outer.items()),
        gives=tuple(TensorSpec(name, types[wire]) for name, wire in shown.items()),
    )
    return node, shown


def _outer(group: Group, outputs: Mapping[str, Wire]) -> dict[tuple[Wire, TensorType], str]:
    """The name of each input: what the first model that reads it calls it, unless that is taken."""
    inside = {node.name for node in group}
    names: dict[tuple[Wire, TensorType], str] = {}
    for node in group:
        for spec in node.takes:
            wire = node.inputs.get(spec.name)
            if wire is None or wire.node in inside or (wire, spec.type) in names:
                continue
            is_free = spec.name not in {*outputs, *names.values()}
            names[wire, spec.type] = spec.name if is_free else f"{node.name}__{spec.name}"
    return names


def _member(
    node: Node,
    outer: Mapping[tuple[Wire, TensorType], str],
    types: Mapping[Wire, TensorType],
) -> MergeMember:
    assert isinstance(node.runs, ModelCall)
    inputs: dict[str, Port] = {}
    for spec in node.takes:
        if (wire := node.inputs.get(spec.name)) is not None:
            inner = (wire.node, wire.tensor) if wire in types else None
            inputs[spec.name] = inner or ("", outer[wire, spec.type])
    return MergeMember(node.name, node.runs.model, inputs)


def _options(models: Sequence[OnnxModel], most: int) -> ServingOptions:
    """Requests wait as long as the most patient of the models lets them, and no longer than the
    least patient queue. What names tensors of one of them (labels, warm-up) is left out.
    """
    options = [model.options for model in models]
    queues = [o.batching.queue_timeout_ms for o in options if o.batching.queue_timeout_ms]
    batching = Batching(
        max_batch=most,
        max_delay_ms=max(o.batching.max_delay_ms for o in options),
        preferred=tuple(size for size in options[0].batching.preferred if size <= most),
        queue_timeout_ms=min(queues, default=None),
        preserve_order=any(o.batching.preserve_order for o in options),
    )
    return ServingOptions(
        batching=batching, **{key: getattr(options[0], key) for key in SERVED_ALIKE}
    )
