"""What a workspace serves, by locks and configs alone: no weights, no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from mmctl.building.build import closure, everything
from mmctl.building.catalog import Catalog, foreign_calls, read_catalog
from mmctl.building.compiled import PlannedPipeline, plan_pipelines
from mmctl.building.merged import only_merged
from mmctl.errors import InputError
from mmctl.files import read_text
from mmctl.pipeline.graph import Form, FusedSteps, Merge, ModelCall, StepCall
from mmctl.pipeline.graph import Node as GraphNode
from mmctl.server.flags import BLS_THREADS
from mmctl.server.runtime import requirement_files
from mmctl.workspace import Workspace, check_name

Kind = Literal["model", "step"] | Form


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as Triton has it. A pipeline's own model has its form as `kind`, what it is made of
    is a `step`. `entry`: clients ask it: a pipeline, or a model that no pipeline calls.
    """

    name: str
    kind: Kind
    entry: bool


@dataclass(frozen=True, slots=True)
class ServedNode:
    """A node of a pipeline, and the model that runs it; nodes that are one are joined by `+`."""

    pipeline: str
    node: str
    model: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """`bls_threads` is what the busiest pipeline needs."""

    models: tuple[ServedModel, ...]
    nodes: tuple[ServedNode, ...]
    bls_threads: int = BLS_THREADS

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self.models)


def read_inventory(workspace: Workspace, names: Sequence[str] = ()) -> Inventory:
    """Of `names` (empty: everything) and all that they call; what needs an image of its own, as
    language models do, is left out. Raises InputError, InvalidFiles.
    """
    wanted = closure(workspace, names or everything(workspace))
    catalog = read_catalog(workspace)
    known = set(workspace.pipeline_names())
    pipelines = plan_pipelines(workspace, catalog, [name for name in wanted if name in known])
    called = {name for p in pipelines for planned in p.models for name in planned.model.calls}
    called.update(*(foreign_calls(workspace, name) for name in wanted if name in catalog.foreign))
    needless = only_merged(workspace, pipelines) - set(names)
    made = [
        ServedModel(name, _kind(workspace, catalog, name), entry=name not in called)
        for name in wanted
        if name not in known and name not in needless and not _has_own_image(catalog, name)
    ]
    generated = [model for pipeline in pipelines for model in _generated(pipeline)]
    nodes = [node for pipeline in pipelines for node in _nodes(pipeline)]
    most = max((p.compiled.calls_at_once for p in pipelines), default=0)
    return Inventory((*made, *generated), tuple(nodes), max(BLS_THREADS, most))


def read_requirements(workspace: Workspace, names: Sequence[str] = ()) -> dict[str, str]:
    """What the steps of pipelines import, and what they share imports: the texts of
    requirements.txt by folder. Raises InputError.
    """
    pipelines = set(workspace.pipeline_names())
    needless = pipelines - set(closure(workspace, names)) if names else set()
    found = {}
    for name, file in requirement_files(workspace).items():
        if problem := check_name(name):
            raise InputError(f"{workspace.shown(file)}: {problem}", hint="rename the folder")
        if name not in needless:
            found[name] = read_text(file)
    return found


def _kind(workspace: Workspace, catalog: Catalog, name: str) -> Kind:
    is_ensemble = name in catalog.foreign and foreign_calls(workspace, name)
    return "ensemble" if is_ensemble else "model"


def _has_own_image(catalog: Catalog, name: str) -> bool:
    model = catalog.models.get(name)
    return model is not None and bool(model.file.source.backend.image)


def _generated(pipeline: PlannedPipeline) -> Iterator[ServedModel]:
    *steps, own = (planned.model.name for planned in pipeline.models)
    for name in steps:
        yield ServedModel(name, "step", entry=False)
    yield ServedModel(own, pipeline.compiled.form, entry=True)


def _nodes(pipeline: PlannedPipeline) -> Iterator[ServedNode]:
    graph, form = pipeline.compiled.graph, pipeline.compiled.form
    for node in graph.nodes:
        if model := _model_of(node, graph.name, form):
            yield ServedNode(graph.name, "+".join(node.covers), model)


def _model_of(node: GraphNode, pipeline: str, form: Form) -> str | None:
    """None for a node that calls nothing."""
    match node.runs:
        case ModelCall():
            return node.runs.model
        case StepCall() | FusedSteps():
            return pipeline if form == "fused" else f"{pipeline}__{node.name}"
        case Merge():
            return None
        case _:
            assert_never(node.runs)
