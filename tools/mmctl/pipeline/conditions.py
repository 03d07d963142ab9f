"""`when:` and `switch:`: which rows a node runs, and whether that can be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mmctl.documents import Key
from mmctl.pipeline.expressions import (
    Reference,
    conjunction,
    negation,
    parse_condition,
    wrong_subscripts,
    wrong_types,
)
from mmctl.pipeline.findings import EXPRESSION, SWITCH, UNKNOWN_REFERENCE, Report
from mmctl.pipeline.graph import Condition, Json, Wire
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.nodes.switch import ELSE, SwitchNode
from mmctl.pipeline.scope import Scope


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition of the file. `place` leads to it."""

    text: str
    tree: Json
    references: tuple[Reference, ...]
    place: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """A node runs on rows where none of `before` holds and `own` does (None: `else`).

    `switch` is the node that says so, "" for a `when` of its own.
    """

    own: Clause | None
    before: tuple[Clause, ...] = ()
    switch: str = ""

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (*self.before, *((self.own,) if self.own else ()))

    @property
    def wires(self) -> tuple[Wire, ...]:
        """Tensors that it reads, each once."""
        return tuple(dict.fromkeys(r.wire for clause in self.clauses for r in clause.references))

    @property
    def condition(self) -> Condition:
        trees = [negation(clause.tree) for clause in self.before]
        texts = [f"not ({clause.text})" for clause in self.before]
        if self.own is not None:
            trees.append(self.own.tree)
            texts.append(f"({self.own.text})" if texts else self.own.text)
        return Condition(" and ".join(texts), conjunction(trees), self.wires)


@dataclass
class Conditions:
    """All conditions of a pipeline that can be read, and the guard of each node that has one."""

    clauses: list[Clause] = field(default_factory=list)
    guards: dict[str, Guard] = field(default_factory=dict)

    def wires(self, node: str) -> tuple[Wire, ...]:
        """Tensors that decide whether a node runs."""
        return self.guards[node].wires if node in self.guards else ()


def read_conditions(nodes: Mapping[str, NodeEntry], report: Report) -> Conditions:
    """Findings about those that cannot be read, and about branches that are none."""
    found = Conditions()
    for name, node in nodes.items():
        if node.when is not None and not isinstance(node, SwitchNode):
            clause = _read(f"{name}.when", node.when, found, report, "nodes", name, "when")
            if clause is not None:
                found.guards[name] = Guard(clause)
    for name, node in nodes.items():
        if isinstance(node, SwitchNode):
            _read_switch(name, node, nodes, found, report)
    return found


def _read_switch(
    name: str,
    node: SwitchNode,
    nodes: Mapping[str, NodeEntry],
    found: Conditions,
    report: Report,
) -> None:
    before: list[Clause] = []
    for index, (branch, text) in enumerate(node.switch.items()):
        place = ("nodes", name, "switch", branch)
        own = None
        if text != ELSE:
            own = _read(f"{name}.switch", text, found, report, *place)
        elif index == 0 or index + 1 < len(node.switch):
            message = f"`{name}.switch`: `else` comes last, after at least one condition"
            report.add(SWITCH, message, *place)
        if problem := _wrong_branch(name, branch, nodes, found):
            report.add_key(SWITCH, problem[0], *place, hint=problem[1])
        elif own is not None or (text == ELSE and before):
            found.guards[branch] = Guard(own, tuple(before), name)
        before += [own] if own else []


def _wrong_branch(
    switch: str, branch: str, nodes: Mapping[str, NodeEntry], found: Conditions
) -> tuple[str, str] | None:
    """Why a node cannot be a branch, and a hint; a node that does not exist is told elsewhere."""
    node, guard = nodes.get(branch), found.guards.get(branch)
    if isinstance(node, SwitchNode):
        hint = "list its branches here, with their conditions"
        return f"`{branch}` is a switch: one switch cannot choose another", hint
    if node is not None and node.when is not None:
        hint = f"join both conditions: `{switch}` decides when `{branch}` runs"
        return f"`{branch}` has a `when` of its own, and is a branch of `{switch}`", hint
    if guard is not None and guard.switch:
        hint = "write the node twice: each switch needs branches of its own"
        return f"`{branch}` is a branch of `{guard.switch}` too", hint
    return None


def _read(what: str, text: str, found: Conditions, report: Report, *place: Key) -> Clause | None:
    try:
        tree, references = parse_condition(text)
    except ValueError as error:
        report.add(EXPRESSION, f"`{what}`: {error}", *place)
        return None
    clause = Clause(text, tree, references, place)
    found.clauses.append(clause)
    return clause


def check_conditions(conditions: Conditions, scope: Scope) -> None:
    """Findings about what conditions read, once the types of all nodes are known."""
    for clause in conditions.clauses:
        unknown = list(_unknown(clause, scope))
        for message, hint in unknown:
            scope.report.add(UNKNOWN_REFERENCE, message, *clause.place, hint=hint)
        for message in () if unknown else _wrong(clause, scope):
            scope.report.add(EXPRESSION, message, *clause.place)


def _unknown(clause: Clause, scope: Scope) -> Iterator[tuple[str, str | None]]:
    for reference in clause.references:
        if problem := scope.wrong_reference(reference.wire):
            yield problem


def _wrong(clause: Clause, scope: Scope) -> list[str]:
    found = [wrong_subscripts(reference, scope) for reference in clause.references]
    return [message for message in found if message] or list(wrong_types(clause.tree, scope))
