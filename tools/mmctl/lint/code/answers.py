"""Where the answers of `exec` and `async_exec` go in the code of a model, by its syntax tree.

An answer is followed through names, lists and loops. Where it leaves sight (given to a function,
returned, put into a dictionary), everything may have been done with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mmctl.lint.code.names import GROWERS, NamedCode, called

Kind = Literal["answer", "answers", "pending", "pendings", "gathered"]
"""An answer or several; what `async_exec` gives before it is awaited ("pending"), and what
`asyncio.gather` gives before it is.
"""
ONE: Mapping[Kind, Kind] = {"answers": "answer", "pendings": "pending", "gathered": "gathered"}
MANY: Mapping[Kind, Kind] = {"answer": "answers", "pending": "pendings"}

Value = frozenset[tuple[Kind, ast.Call]]
"""Which answers an expression may hold, by the call that they are of."""
NOTHING: Value = frozenset()

READER = "get_output_tensor_by_name"
GATHER = "gather"
SAME = frozenset({"wait_for", "create_task", "ensure_future", "shield"})
WAITED = frozenset({"run", "run_until_complete"})
SEQUENCES = frozenset({"enumerate", "zip", "list", "tuple", "set", "iter", "reversed"})
LOOKS = frozenset({"len", "print", "isinstance", "type", "bool", "str", "repr", "any", "all"})
AWAITERS = SAME | WAITED | {GATHER}
CHECKS = frozenset({"has_error", "error"})
MAX_DEPTH = 40
MAX_BOUNDS = 50


@dataclass(frozen=True, slots=True)
class Held:
    """`node` reads what `runs` answered; `name` is the output that it asks for, None: all."""

    node: ast.expr
    runs: tuple[ast.Call, ...]
    name: ast.expr | None


class Answers:
    """`decoupled` has the calls that run a request, each with whether it gives several answers,
    None where that is not known.
    """

    def __init__(self, code: NamedCode, decoupled: Mapping[ast.Call, bool | None]) -> None:
        self._code = code
        self._decoupled = decoupled
        self._values: dict[ast.AST, Value] = {}

    def readings(self) -> Iterator[Held]:
        for node in self._code.nodes:
            match node:
                case ast.Call() if called(node) == READER and (node.args or node.keywords):
                    given = [*node.args, *(keyword.value for keyword in node.keywords)]
                    yield from self._held(node, given[0], given[1] if given[1:] else None)
                case ast.Call(func=ast.Attribute(value=answer, attr="output_tensors")):
                    yield from self._held(node, answer, None)

    def _held(self, node: ast.expr, answer: ast.expr, name: ast.expr | None) -> Iterator[Held]:
        runs = {call for kind, call in self.value(answer) if kind == "answer"}
        if runs:
            ordered = sorted(runs, key=lambda call: (call.lineno, call.col_offset))
            yield Held(node, tuple(ordered), name)

    def checked(self, held: Held) -> bool:
        """Whether the code looks for an error in these answers, or may do so out of sight."""
        seen = not set(held.runs).isdisjoint(self._gone | self._looked)
        return seen or self._code.scope(held.node) in self._looks_elsewhere

    def lost(self, call: ast.Call) -> bool:
        """Whether nobody awaits what an `async_exec` gives."""
        return call not in self._awaited and call not in self._gone

    @cached_property
    def _looked(self) -> set[ast.Call]:
        return {
            call
            for node in self._code.nodes
            if isinstance(node, ast.Attribute) and node.attr in CHECKS
            for _, call in self.value(node.value)
        }

    @cached_property
    def _looks_elsewhere(self) -> set[ast.AST | None]:
        """The functions that look for an error in an answer that was not followed so far."""
        return {
            self._code.scope(node)
            for node in self._code.nodes
            if isinstance(node, ast.Attribute)
            and node.attr == "has_error"
            and not self.value(node.value)
        }

    @cached_property
    def _awaited(self) -> set[ast.Call]:
        found = set()
        for node in self._code.nodes:
            if isinstance(node, ast.Await):
                found |= {call for _, call in self.value(node.value)}
            elif isinstance(node, ast.Call) and called(node) in WAITED:
                found |= {call for argument in node.args for _, call in self.value(argument)}
        return found

    @cached_property
    def _gone(self) -> set[ast.Call]:
        return {
            call
            for node in self._code.nodes
            if isinstance(node, ast.expr) and not isinstance(node, ast.Starred)
            for _, call in self.value(node)
            if self._leaves(node)
        }

    def _leaves(self, node: ast.expr) -> bool:
        """Whether a value leaves sight at this place."""
        parent = self._code.parent.get(node)
        if isinstance(parent, (ast.Starred, ast.keyword)):
            parent = self._code.parent.get(parent)
        match parent:
            case ast.Call():
                return parent.func is not node and self._takes_away(parent, node)
            case ast.Assign(targets=targets):
                return not all(_is_followed(target) for target in targets)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return not _is_followed(target)
            case ast.Return() | ast.Yield() | ast.YieldFrom() | ast.Lambda():
                return True
            case ast.Dict() | ast.DictComp() | ast.AugAssign():
                return True
        return False

    def _takes_away(self, call: ast.Call, node: ast.expr) -> bool:
        """Whether a call may do anything with an argument."""
        name = called(call)
        if name in GROWERS:
            return not (isinstance(call.func, ast.Attribute) and _is_followed(call.func.value))
        if name in AWAITERS:
            return any(kind in ("answer", "answers") for kind, _ in self.value(node))
        return name not in SEQUENCES | LOOKS | {READER}

    def value(self, node: ast.AST, depth: int = 0) -> Value:
        """The answers that an expression may hold."""
        if node in self._values:
            return self._values[node]
        if depth > MAX_DEPTH:
            return NOTHING
        self._values[node] = NOTHING  # for a name that is given what it already holds
        found = self._value(node, depth + 1)
        self._values[node] = found
        return found

    def _value(self, node: ast.AST, depth: int) -> Value:
        found = NOTHING
        match node:
            case ast.Call() if node in self._decoupled:
                waits = called(node) == "exec"
                found = self._answers(node) if waits else _of("pending", node)
            case ast.Call(args=args):
                found = self._call(called(node), args, depth)
            case ast.Await(value=inner):
                found = self._await(self.value(inner, depth))
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                found = self._named(node, depth)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                found = self._many(items, depth)
            case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                found = self._many([item], depth)
            case ast.Subscript(value=inner):
                found = _turned(self.value(inner, depth), ONE)
            case ast.Starred(value=inner) | ast.NamedExpr(value=inner):
                found = self.value(inner, depth)
            case ast.IfExp(body=one, orelse=other):
                found = self.value(one, depth) | self.value(other, depth)
            case ast.BoolOp(values=values):
                found = _joined(self.value(value, depth) for value in values)
        return found

    def _named(self, node: ast.AST, depth: int) -> Value:
        bounds = self._code.bounds(node)
        if len(bounds) > MAX_BOUNDS:
            return NOTHING
        return _joined(
            _turned(given, ONE) if bound.each else given
            for bound in bounds
            if bound.value is not None
            for given in (self.value(bound.value, depth),)
        )

    def _answers(self, call: ast.Call) -> Value:
        several = self._decoupled[call]
        found = NOTHING if several else _of("answer", call)
        return found if several is False else found | _of("answers", call)

    def _call(self, name: str, args: list[ast.expr], depth: int) -> Value:
        if name == GATHER:
            return frozenset(("gathered", call) for _, call in self._many(args, depth))
        if name in SAME and args:
            return self.value(args[0], depth)
        if name in WAITED and args:
            return self._await(self.value(args[0], depth))
        if name in SEQUENCES:
            held = [self.value(argument, depth) for argument in args]
            return frozenset(pair for value in held for pair in value if pair[0] in ONE)
        return NOTHING

    def _await(self, value: Value) -> Value:
        return _joined(
            self._answers(call) if kind == "pending" else _of("answers", call)
            for kind, call in value
            if kind in ("pending", "gathered")
        )

    def _many(self, items: list[ast.expr], depth: int) -> Value:
        return _joined(
            value if isinstance(item, ast.Starred) else _turned(value, MANY)
            for item in items
            for value in (self.value(item, depth),)
        )


def _of(kind: Kind, call: ast.Call) -> Value:
    return frozenset({(kind, call)})


def _joined(values: Iterable[Value]) -> Value:
    return NOTHING.union(*values)


def _turned(value: Value, kinds: Mapping[Kind, Kind]) -> Value:
    return frozenset((kinds.get(kind, kind), call) for kind, call in value)


def _is_followed(target: ast.expr) -> bool:
    match target:
        case ast.Name() | ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return all(_is_followed(item) for item in items)
        case ast.Starred(value=inner):
            return _is_followed(inner)
    return False
