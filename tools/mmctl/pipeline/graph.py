"""The checked graph: every node typed, every wire resolved, nodes in the order they can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmctl.pipeline.source import Asset
from mmctl.tensors import TensorSpec
from mmctl.triton.options import Batching, Instances


@dataclass(frozen=True, slots=True, order=True)
class Wire:
    """A tensor of the graph: an output of `node`, or an input of the pipeline (`node` "")."""

    node: str
    tensor: str

    def __str__(self) -> str:
        return f"{self.node}.{self.tensor}" if self.node else self.tensor


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Runs a model, or another pipeline, as it is in the repository."""

    model: str
    max_batch: int


@dataclass(frozen=True, slots=True)
class StepCall:
    """Runs a Python function in a model of its own.

    `options` None means a function of the user's, called with its inputs; a ready-made one is
    made from its options. `rows` calls it once a row, without batch axis; `join` lets one call
    serve several requests. `max_batch` None leaves the size to the pipeline. `sources` and
    `assets` are the user's files that it is made of, by path inside the version folder.
    """

    module: str
    function: str
    options: Mapping[str, Any] | None = None
    rows: bool = False
    join: bool = True
    batching: Batching = field(default_factory=Batching)
    max_batch: int | None = None
    instances: Instances = field(default_factory=Instances)
    sources: Mapping[str, str] = field(default_factory=dict)
    assets: Mapping[str, Asset] = field(default_factory=dict)
    requirements: str = ""

    @property
    def is_own(self) -> bool:
        """A function of the user's: it takes whatever feeds it."""
        return self.options is None


@dataclass(frozen=True, slots=True)
class Node:
    """`inputs` maps what the callee calls its input to the tensor that feeds it."""

    name: str
    runs: ModelCall | StepCall
    inputs: Mapping[str, Wire]
    takes: tuple[TensorSpec, ...]
    gives: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline that an ensemble can express. `nodes` follow what they read.

    `outputs` maps names to the tensors they show. `max_batch` 0 means no batch axis.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: Mapping[str, Wire]
    nodes: tuple[Node, ...]
    max_batch: int

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def output_specs(self) -> tuple[TensorSpec, ...]:
        """The pipeline's outputs with the types of the tensors they show."""
        return tuple(TensorSpec(name, self.spec(wire).type) for name, wire in self.outputs.items())

    def spec(self, wire: Wire) -> TensorSpec:
        specs = self.node(wire.node).gives if wire.node else self.inputs
        return next(spec for spec in specs if spec.name == wire.tensor)
