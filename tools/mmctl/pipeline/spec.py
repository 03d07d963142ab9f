"""The shape of pipeline.yaml: top-level keys, and each node as its kind has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from mmctl.documents import Data, Document, Entry, Flag, Size, load_entry
from mmctl.errors import InvalidFiles
from mmctl.pipeline.findings import KIND, Report
from mmctl.pipeline.graph import Form
from mmctl.pipeline.nodes import KINDS
from mmctl.pipeline.nodes.base import NodeEntry, TimeLimit
from mmctl.triton.options import Count

E = TypeVar("E", bound=Entry)


def _check_fuse(value: object) -> object:
    """One mistake is one finding: a union of types would tell each of its own."""
    nodes = value if isinstance(value, list) else []
    if value == "auto" or (len(nodes) > 1 and all(isinstance(node, str) for node in nodes)):
        return value
    raise ValueError("write `auto`, or two or more nodes: [a, b]")


class PipelineFile(Entry):
    """Top-level keys. `nodes` are read one by one, so that a mistake in one hides no other's."""

    pipeline: str
    inputs: Annotated[dict[str, str], Field(min_length=1)]
    nodes: Annotated[dict[str, Any], Field(min_length=1)]
    outputs: Annotated[dict[str, str], Field(min_length=1)]
    max_batch: Annotated[int, Field(ge=1, le=65536)] | None = None
    form: Form | None = None
    deadline_ms: TimeLimit | None = None
    max_pending: Count | None = None
    provenance: Flag = False
    cache_bytes: Size | None = None
    fuse: Annotated[tuple[str, ...] | Literal["auto"], BeforeValidator(_check_fuse)] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """A file as it was understood. Nodes with a wrong shape are in `file.nodes` alone."""

    file: PipelineFile
    nodes: Mapping[str, NodeEntry]
    kinds: Mapping[str, str]

    @property
    def is_whole(self) -> bool:
        """Whether every node could be read."""
        return len(self.nodes) == len(self.file.nodes)


def read_spec(report: Report) -> Spec | None:
    """None when too little of the file can be understood to look further."""
    file = _read_file(report)
    raw = _raw_nodes(report.document)
    kinds = {name: kind for name in raw if (kind := _read_kind(name, raw[name], report))}
    nodes = {
        name: node
        for name, kind in kinds.items()
        if (node := _read_node(name, KINDS[kind].entry, raw[name], report))
    }
    return Spec(file, nodes, kinds) if file else None


def _read_file(report: Report) -> PipelineFile | None:
    try:
        return load_entry(PipelineFile, report.document)
    except InvalidFiles as error:
        report.findings += error.findings
    return _salvaged(PipelineFile, report.document.data)


def _salvaged(kind: type[E], data: Data) -> E | None:
    """What can be understood when unknown keys are left out: one mistake hides no others."""
    if not isinstance(data, dict):
        return None
    try:
        return kind.model_validate({k: v for k, v in data.items() if k in kind.model_fields})
    except ValidationError:
        return None


def _raw_nodes(document: Document) -> dict[str, Data]:
    nodes = document.data.get("nodes") if isinstance(document.data, dict) else None
    return nodes if isinstance(nodes, dict) else {}


def _read_kind(name: str, node: Data, report: Report) -> str | None:
    """The one key of a node that names its kind."""
    place = ("nodes", name)
    if not isinstance(node, dict):
        report.add_key(KIND, f"`{name}` is a mapping: {{model: NAME, inputs: {{...}}}}", *place)
        return None
    kinds = [kind for kind in KINDS if kind in node]
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        message = f"`{name}` is a {' and a '.join(kinds)}: a node is one of them"
        report.add_key(KIND, message, *place)
        return None
    report.add_key(
        KIND,
        f"`{name}` has no `model` and no `step`",
        *place,
        hint="write what it runs: model: NAME, step: NAME, or switch: {NODE: CONDITION}",
    )
    return None


def _read_node(name: str, entry: type[NodeEntry], node: Data, report: Report) -> NodeEntry | None:
    try:
        return load_entry(entry, report.document, "nodes", name)
    except InvalidFiles as error:
        report.findings += error.findings
    return _salvaged(entry, node)
