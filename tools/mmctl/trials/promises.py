"""What a pipeline declares, as a promise about one fault of one node. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from mmctl.pipeline.graph import Form, Graph, Merge, Node
from mmctl.trials.fates import Fate, Fates, fates_of, lucky_nodes
from mmctl.trials.faults import UNCHECKED, Fault

Sources = tuple[tuple[str, ...], tuple[str, ...]]
"""Nodes that give what `on_error` declares, and nodes that are left out."""
AT_ONCE_MS = 2000.0
"""An error that nobody has to wait for is told within so long, a dead process included."""


class Outcome(StrEnum):
    """How a request ends."""

    DECLARED = "answer with declared values"
    RIGHT = "the right answer, late"
    ERROR = "error"
    NOTHING = "no promise: an ensemble checks no answers"


@dataclass(frozen=True, slots=True)
class Slack:
    """How much later than its declared time an answer may come."""

    factor: float
    ms: float


NORMAL = Slack(1.5, 50.0)
STRICT = Slack(1.05, 10.0)


@dataclass(frozen=True, slots=True)
class Promise:
    """`names` is a node that an error must name. `absorbed` and `dropped` are the nodes whose
    declaration keeps the failure from the answer. `beyond_ms`: how much longer than without the
    fault it may take; None: no bound. `otherwise` is as good: Triton tells of a dead process at
    once or after a second, when the pipeline's deadline may be over.
    """

    outcome: Outcome
    names: str = ""
    absorbed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    beyond_ms: float | None = None
    otherwise: Promise | None = None

    @property
    def ways(self) -> tuple[Promise, ...]:
        """All that is promised, each as good as the others."""
        return (self,) if self.otherwise is None else (self, self.otherwise)

    @property
    def sources(self) -> Sources:
        return self.absorbed, self.dropped

    @property
    def text(self) -> str:
        return " or ".join(way.own_text for way in self.ways)

    @property
    def own_text(self) -> str:
        match self.outcome:
            case Outcome.ERROR if self.names:
                return f"error that names `{self.names}`"
            case Outcome.DECLARED:
                parts = [f"`on_error` of {_list(self.absorbed)}"] if self.absorbed else []
                parts += [f"without {_list(self.dropped)}"] if self.dropped else []
                return f"answer, {', '.join(parts)}" if parts else "answer"
            case other:
                return str(other)


def calling_nodes(graph: Graph) -> tuple[Node, ...]:
    """Nodes that can fail: a switch calls nothing."""
    return tuple(node for node in graph.nodes if not isinstance(node.runs, Merge))


def compared_outputs(graph: Graph) -> tuple[str, ...]:
    """Outputs that are the same each time; others depend on who of a quorum is the quickest."""
    lucky = lucky_nodes(graph)
    return tuple(name for name, wire in graph.outputs.items() if wire.node not in lucky)


def limit_ms(graph: Graph, node: Node) -> float | None:
    """How long a node has to answer; None: as long as it takes."""
    limits = [node.policy.timeout_ms, graph.rules.deadline_ms]
    return min((limit for limit in limits if limit is not None), default=None)


def promise_of(
    graph: Graph, form: Form, node: Node, fault: Fault, slack: Slack = NORMAL
) -> Promise:
    if form != "bls" and fault in UNCHECKED:
        return Promise(Outcome.NOTHING)
    limit = limit_ms(graph, node)
    if fault is Fault.SLOW and limit is None:
        return Promise(Outcome.RIGHT)
    beyond_ms = _beyond_ms(node, fault, limit, slack)
    in_time = _promise(graph, form, node, beyond_ms, too_late=False)
    if limit == node.policy.timeout_ms or fault not in (Fault.SLOW, Fault.DEAD):
        return in_time
    late = _promise(graph, form, node, beyond_ms, too_late=True)
    if fault is Fault.SLOW or late == in_time:
        return late
    return replace(in_time, otherwise=late)


def _promise(graph: Graph, form: Form, node: Node, beyond_ms: float, *, too_late: bool) -> Promise:
    fates = fates_of(graph, node.name, too_late=too_late)
    if culprits := _culprits(graph, fates):
        names = culprits[0] if form == "bls" and len(culprits) == 1 else ""
        return Promise(Outcome.ERROR, names=names, beyond_ms=beyond_ms)
    absorbed, dropped = _with(fates, Fate.ABSORBED), _with(fates, Fate.DROPPED)
    return Promise(Outcome.DECLARED, "", absorbed, dropped, beyond_ms)


def _culprits(graph: Graph, fates: Fates) -> list[str]:
    """Where failures begin that reach an output: at the node, or where one was not started."""
    waiting = {wire.node for wire in graph.outputs.values() if wire.node}
    found = []
    for node in reversed(graph.nodes):
        if node.name in waiting and fates[node.name] is Fate.FAILS:
            causes = {name for name in node.needs() if fates[name] is Fate.FAILS}
            waiting |= causes
            found += [] if causes else [node.name]
    return found


def _beyond_ms(node: Node, fault: Fault, limit: float | None, slack: Slack) -> float:
    """Each try of a call to what is dead may cost as much as the first."""
    tries = node.policy.retries + 1 if fault is Fault.DEAD else 1
    in_time = [] if limit is None else [limit * slack.factor + slack.ms]
    if fault is not Fault.SLOW:
        in_time.append(AT_ONCE_MS * tries)
    return min(in_time)


def _with(fates: Fates, wanted: Fate) -> tuple[str, ...]:
    return tuple(name for name, fate in fates.items() if fate is wanted)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
