"""Which Python steps become one model; the answers stay the same. Pure.

A group grows from one step, its last: a step joins when all its readers are in the group. So no
path leaves a group and enters it again, and the group fails when its last step would have failed
anyway. `fuse: [a, b]` makes a group of the steps that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mmctl.compiler.regroup import Group, regrouped
from mmctl.pipeline.graph import Graph, Member, ModelCall, Node, StepCall
from mmctl.triton.options import Batching, Instances

CHEAP = {"ready_labels", "ready_threshold", "ready_join"}
"""Steps that cost less than a call does: they may wait for all that their reader waits for."""


def fuse_steps(graph: Graph) -> Graph:
    """Each group as one node, named after its last step.

    Raises ValueError when the steps that `fuse:` names cannot be one model: the message says why.
    """
    return regrouped(graph, _Steps(graph).groups())


class _Steps:
    """What there is to know about the steps of a graph to group them.

    `readers` and `before` map nodes to those that read them, and to all that come before them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers: dict[str, set[str]] = {node.name: set() for node in graph.nodes}
        self.before = graph.before()
        for node in graph.nodes:
            for name in node.needs():
                self.readers[name].add(node.name)
        self.shown = {wire.node for wire in graph.outputs.values()}
        self.named = {name for node in graph.nodes for name in node.watches()}
        self.skipping = [n for n in graph.nodes if n.policy.when or not n.policy.required]
        self.steps: dict[str, Member] = {
            node.name: Member(node.name, node.runs, node.inputs, node.takes, node.gives)
            for node in graph.nodes
            if isinstance(node.runs, StepCall) and self._own_way(node) is None
        }

    def groups(self) -> list[Group]:
        """Those of two steps or more; only what `fuse:` names where another form is pinned."""
        asked_for = self._asked_for()
        if self.graph.rules.form in ("ensemble", "bls"):
            return [self._in_order(asked_for)] if len(asked_for) > 1 else []
        found: list[Group] = []
        taken: set[str] = set()
        backwards = [node.name for node in reversed(self.graph.nodes) if node.name in self.steps]
        for seed in (asked_for, *({name} for name in backwards)):
            if seed and not seed & taken:
                group = self._grown(seed, taken)
                taken |= group
                found.append(self._in_order(group))
        return [group for group in found if len(group) > 1]

    def _in_order(self, group: set[str]) -> Group:
        return tuple(self.steps[node.name] for node in self.graph.nodes if node.name in group)

    def _last(self, group: set[str]) -> str:
        return self._in_order(group)[-1].name

    def _grown(self, seed: set[str], taken: set[str]) -> set[str]:
        """The seed with all that only it reads, directly or through others, and need not wait."""
        group = set(seed)
        for node in reversed(self.graph.nodes):
            if node.name in self.steps and node.name not in taken | group:
                readers = self.readers[node.name]
                if readers and readers <= group and self._fits(node.name, group):
                    group.add(node.name)
        while left := {name for name in group - seed if not self._stays(name, group)}:
            group -= left
        return group

    def _stays(self, name: str, group: set[str]) -> bool:
        return (
            self.readers[name] <= group
            and (self.steps[name].call.module in CHEAP or not self._waits(name, group))
            and self._change(name, group) is None
        )

    def _waits(self, name: str, group: set[str]) -> bool:
        """Whether the step, in the group, would wait for what it does not rest on."""
        return self.before[name] - group != self._before_any(group) - group

    def _fits(self, name: str, group: Iterable[str]) -> bool:
        """Whether the step can live in one version folder and environment with the others."""
        call = self.steps[name].call
        return all(_live_together(call, self.steps[member].call) for member in group)

    def _asked_for(self) -> set[str]:
        """The steps that `fuse:` names, or all when the form is pinned to `fused`."""
        named = set(self.graph.rules.fuse) if self.graph.rules.fuse != "auto" else set()
        nodes = [node for node in self.graph.nodes if node.name in named]
        if any(isinstance(node.runs, ModelCall) for node in nodes):
            return set()
        if not named and self.graph.rules.form == "fused":
            whole = {node.name for node in self.graph.nodes}
            return whole if whole == set(self.steps) and not self._problem(whole) else set()
        for node in nodes:
            if own_way := self._own_way(node):
                raise ValueError(f"`{node.name}` cannot be fused: {own_way}")
        group = {node.name for node in nodes}
        if problem := self._problem(group):
            raise ValueError(problem)
        return group

    def _problem(self, group: set[str]) -> str | None:
        """Why steps that somebody wants to be one model cannot be."""
        for name in sorted(group):
            if not self._fits(name, group):
                return f"`{name}` cannot be fused: it has other requirements or files"
        for node in self.graph.nodes:
            is_between = self.before[node.name] & group and node.name in self._before_any(group)
            if is_between and node.name not in group:
                shown = " and ".join(f"`{member.name}`" for member in self._in_order(group))
                return f"{shown} cannot be one model: `{node.name}` stands between them"
        changes = (self._change(member.name, group) for member in self._in_order(group))
        return next((change for change in changes if change), None)

    def _before_any(self, group: set[str]) -> set[str]:
        return {name for member in group for name in self.before[member]}

    def _own_way(self, node: Node) -> str | None:
        """Why a step keeps a model of its own: it is served or watched in its own way."""
        call = node.runs
        if not isinstance(call, StepCall):
            return "it is no step"
        if node.policy.used:
            return f"it has `{node.policy.used[0]}`"
        if node.name in self.named:
            return "a policy of another node names it"
        if call.instances != Instances():
            return "it has `instances`"
        if call.batching != Batching() or call.max_batch is not None:
            return "it has `batching`"
        return "it has `batch: false`" if call.rows else None

    def _change(self, name: str, group: set[str]) -> str | None:
        """How answers would change if the step were in the group: through rows that are skipped,
        or a failure that a node behind the group absorbs.
        """
        skipping = [n.name for n in self.skipping if n.name in self._before_any(group)]
        own = [n for n in skipping if n in self.before[name]]
        is_seen = name in self.shown or not self.readers[name] <= group
        is_seen = is_seen and name != self._last(group)
        if skipping and (own != skipping or is_seen or self._is_optional(name, group)):
            return f"`{name}` cannot be fused: rows that `{skipping[0]}` skips would change"
        absorbing = next(self._absorbing(group), None) if is_seen else None
        if absorbing is not None:
            return f"`{name}` cannot be fused: `{absorbing}` would take other failures for its own"
        return None

    def _is_optional(self, name: str, group: set[str]) -> bool:
        """Whether a step of the group can do without it."""
        return any(
            spec.optional and self.steps[reader].inputs[spec.name].node == name
            for reader in self.readers[name] & group
            for spec in self.steps[reader].takes
        )

    def _absorbing(self, group: set[str]) -> Iterator[str]:
        """Nodes behind the group for which a failure is not the end."""
        for node in self.graph.nodes:
            if node.policy.absorbs and self.before[node.name] & group:
                yield node.name


def _live_together(one: StepCall, other: StepCall) -> bool:
    mine, theirs = ({**call.sources, **call.assets} for call in (one, other))
    return one.requirements == other.requirements and all(
        mine[path] == theirs[path] for path in mine.keys() & theirs.keys()
    )
