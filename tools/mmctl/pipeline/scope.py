"""What one look at a pipeline knows: its sources, its nodes' callees, the types of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mmctl.diagnostics import nearest
from mmctl.documents import Key
from mmctl.pipeline.findings import ASSET, UNKNOWN_REFERENCE, Report
from mmctl.pipeline.graph import Merge, ModelCall, StepCall, Wire
from mmctl.pipeline.source import PACKAGE, Asset, PipelineSource
from mmctl.pipeline.stepfile import StepFiles
from mmctl.tensors import Signature, TensorSpec, TensorType


@dataclass(frozen=True, slots=True)
class Callee:
    """What a node runs, typed; `foreach` runs it for each item of a list tensor."""

    runs: ModelCall | StepCall | Merge
    takes: tuple[TensorSpec, ...]
    gives: tuple[TensorSpec, ...]
    foreach: bool = False

    @property
    def is_own(self) -> bool:
        """A function of the user's: it takes whatever feeds it."""
        return isinstance(self.runs, StepCall) and self.runs.is_own

    def input(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.takes if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.gives if spec.name == name), None)

    def type_of(self, spec: TensorSpec) -> TensorType:
        """An output as others read it."""
        return replace(spec.type, items=True) if self.foreach else spec.type


def parse_reference(text: str) -> Wire:
    """`node.tensor`, split at the first dot, or the bare name of a pipeline's input."""
    head, dot, tail = text.partition(".")
    return Wire(head, tail) if dot else Wire("", head)


@dataclass
class Scope:
    """Answers questions about one pipeline, while its nodes are resolved in their order.

    `inputs` has None for an input whose type is wrong, `callees` for a node that is wrong in
    itself; `known_nodes` also has those that could not even be read. What is wrong already is not
    reported again by all who touch it. `instances` has how many copies of a model run, where
    that is known; `doubts` why answers of a model cannot be kept.
    """

    source: PipelineSource
    catalog: Mapping[str, Signature]
    report: Report
    step_files: StepFiles
    inputs: Mapping[str, TensorType | None]
    known_nodes: frozenset[str]
    instances: Mapping[str, int]
    doubts: Mapping[str, str]
    callees: dict[str, Callee | None] = field(default_factory=dict)

    def callee(self, node: str) -> Callee | None:
        """None when it is not known: a finding says why, or the node comes later in a circle."""
        return self.callees.get(node)

    def type_of(self, wire: Wire) -> TensorType | None:
        """The type of a tensor; None when it is not known, without a finding."""
        if not wire.node:
            return self.inputs.get(wire.tensor)
        callee = self.callee(wire.node)
        spec = callee.output(wire.tensor) if callee else None
        return callee.type_of(spec) if callee and spec else None

    def may_lack(self, node: str, key: str) -> bool:
        """Whether an input, as the node writes its name, may be absent; True when unknown."""
        callee = self.callee(node)
        spec = callee.input(key.removesuffix("?")) if callee else None
        return spec is None or spec.optional

    def wire(self, text: str, *location: Key) -> Wire | None:
        """The tensor that a reference at `location` names, or None with a finding."""
        wire = parse_reference(text)
        problem = self.wrong_reference(wire)
        if problem is None:
            return wire
        message, hint = problem
        self.report.add(UNKNOWN_REFERENCE, message, *location, hint=hint)
        return None

    def wrong_reference(self, wire: Wire) -> tuple[str, str | None] | None:
        """What is wrong with a reference, and a hint; None when it names a tensor."""
        if not wire.node:
            if wire.tensor in self.inputs:
                return None
            return f"`{wire}` is no input of the pipeline", self._hint_for_bare(wire.tensor)
        if wire.node not in self.known_nodes:
            return f"`{wire}`: there is no node `{wire.node}`", nearest(wire.node, self.known_nodes)
        callee = self.callee(wire.node)
        if callee is None or callee.output(wire.tensor) is not None:
            return None
        names = [spec.name for spec in callee.gives]
        return f"`{wire.node}` has no output `{wire.tensor}`", nearest(wire.tensor, names)

    def _hint_for_bare(self, name: str) -> str | None:
        callee = self.callee(name) if name in self.known_nodes else None
        if callee and callee.gives:
            return f"for an output of that node write `{name}.{callee.gives[0].name}`"
        return nearest(name, self.inputs)

    def asset(self, text: str, *location: Key) -> Asset | None:
        """The file that an option names: one of assets/, or `package:...`."""
        if text.startswith(PACKAGE):
            return Asset(text.rpartition("/")[2], package=text)
        if text in self.source.assets:
            return self.source.assets[text]
        self.report.add(
            ASSET,
            f"`{text}`: there is no such file in assets/",
            *location,
            hint=nearest(text, self.source.assets) or f'name it, or write "{PACKAGE}NAME/path"',
        )
        return None
