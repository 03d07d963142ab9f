"""The checked graph: every node typed, every wire resolved, nodes in the order they can run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from mmctl.pipeline.source import Asset
from mmctl.tensors import TensorSpec
from mmctl.triton.options import Batching, Instances, ServingOptions
from mmctl.triton.recipe import MergeRecipe

Form = Literal["ensemble", "bls", "fused"]


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
class MergedModels(ModelCall):
    """Runs several ONNX models as one that is made of them, `model`."""

    recipe: MergeRecipe
    options: ServingOptions


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

    @property
    def is_served_plainly(self) -> bool:
        """Nothing is said about how it is served: it may share a model with others."""
        said = (self.batching, self.instances, self.max_batch, self.rows)
        return said == (Batching(), Instances(), None, False)


@dataclass(frozen=True, slots=True)
class Merge:
    """Calls nothing: row by row, the values of the first of `branches` that has some.

    What `switch:` becomes; its conditions are the `when` of the branches.
    """

    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A step of several that are one model. A wire with node "" is an input of that model."""

    name: str
    call: StepCall
    inputs: Mapping[str, Wire]
    takes: tuple[TensorSpec, ...]
    gives: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class FusedSteps:
    """Runs several steps in one Python model, `members` in their order.

    `shows` says which tensor of which member each output of the node is.
    """

    members: tuple[Member, ...]
    shows: Mapping[str, Wire]


Json = Any
"""What JSON can say: a tree of lists, dicts, text, numbers, true and false."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Which rows a node runs: `text` as it was written, `tree` as the runner reads it.

    A tree is ["and" | "or", tree, ...], ["not", tree], [OP, tree, tree] with OP one of == != <
    <= > >=, ["value", 0.8], or ["ref", node, tensor, [subscript, ...]] (node "" for an input of
    the pipeline; the batch axis is left out).
    """

    text: str
    tree: Json
    wires: tuple[Wire, ...]


@dataclass(frozen=True, slots=True)
class Quorum:
    """Go on when `need` nodes out of `of` have answered."""

    need: int
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """What may happen to a node. All defaults: what an ensemble does anyway.

    `on_error` has a JSON value for each output of the node that is read: one element, which fills
    the shape, or a list of the shape of one row; None lets a failure flow on. `timeout_ms` is for
    the node in total, all tries included. `foreach` names a list tensor: the node runs for each
    item of it; inputs wired to list tensors give one item each, all others are repeated.
    `max_in_flight` None leaves the number to the compiler. `cache`: for how many seconds an answer
    is reused where the same inputs come again.
    """

    timeout_ms: float | None = None
    retries: int = 0
    on_error: Mapping[str, Json] | None = None
    required: bool = True
    hedge_ms: float | None = None
    quorum: Quorum | None = None
    when: Condition | None = None
    foreach: Wire | None = None
    after: tuple[str, ...] = ()
    max_in_flight: int | None = None
    cache: float | None = None

    @property
    def used(self) -> tuple[str, ...]:
        """Keys that are not what an ensemble does anyway."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    @property
    def absorbs(self) -> bool:
        """Whether a failure, of the node or of what feeds it, may end here."""
        return self.on_error is not None or self.quorum is not None or not self.required


@dataclass(frozen=True, slots=True)
class Node:
    """`inputs` maps what the callee calls its input to the tensor that feeds it.

    `takes` and `gives` are the callee's own: of one item, not of the list, where a policy says
    `foreach`. `Graph.spec` gives the type of a tensor as others read it.
    """

    name: str
    runs: ModelCall | StepCall | FusedSteps | Merge
    inputs: Mapping[str, Wire]
    takes: tuple[TensorSpec, ...]
    gives: tuple[TensorSpec, ...]
    policy: Policy = Policy()

    @property
    def covers(self) -> tuple[str, ...]:
        """The nodes of the pipeline that this one stands for."""
        if isinstance(self.runs, FusedSteps):
            return tuple(member.name for member in self.runs.members)
        if isinstance(self.runs, MergedModels):
            return tuple(member.name for member in self.runs.recipe.members)
        return (self.name,)

    def watches(self) -> Iterator[str]:
        """Nodes that it names as such, not by a tensor."""
        yield from self.policy.after
        yield from self.policy.quorum.of if self.policy.quorum else ()
        yield from self.runs.branches if isinstance(self.runs, Merge) else ()

    def needs(self) -> Iterator[str]:
        """Nodes that come before this one, each once; those of a policy included."""
        wires = [*self.inputs.values(), *(self.policy.when.wires if self.policy.when else ())]
        wires += [self.policy.foreach] if self.policy.foreach else []
        branches = self.runs.branches if isinstance(self.runs, Merge) else ()
        named = [*(w.node for w in wires if w.node), *branches, *self.policy.after]
        yield from dict.fromkeys(named)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a pipeline says about itself as a whole.

    `form` None leaves the choice to the compiler. `fuse`: nodes to be made one, or `auto`.
    `cache_bytes` bounds the answers that an instance keeps for nodes with `cache`; None leaves it
    to the compiler.
    """

    form: Form | None = None
    fuse: tuple[str, ...] | Literal["auto"] = ()
    deadline_ms: float | None = None
    max_pending: int | None = None
    provenance: bool = False
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked pipeline. `nodes` follow what they read.

    `outputs` maps names to the tensors they show. `max_batch` 0 means no batch axis.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: Mapping[str, Wire]
    nodes: tuple[Node, ...]
    max_batch: int
    rules: Rules = Rules()

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def before(self) -> dict[str, set[str]]:
        """Each node's name, and all that come before it."""
        found: dict[str, set[str]] = {}
        for node in self.nodes:
            needs = set(node.needs())
            found[node.name] = needs.union(*(found[name] for name in needs))
        return found

    def output_specs(self) -> tuple[TensorSpec, ...]:
        """The pipeline's outputs with the types of the tensors they show."""
        return tuple(TensorSpec(name, self.spec(wire).type) for name, wire in self.outputs.items())

    def spec(self, wire: Wire) -> TensorSpec:
        """A tensor as others read it: a list tensor where its node runs for each item."""
        if not wire.node:
            return next(spec for spec in self.inputs if spec.name == wire.tensor)
        node = self.node(wire.node)
        spec = next(spec for spec in node.gives if spec.name == wire.tensor)
        if node.policy.foreach is None:
            return spec
        return replace(spec, type=replace(spec.type, items=True))
