"""What the names of Python code are bound to, read from its syntax tree: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.Module)
GROWERS = {"append": 0, "extend": 0, "insert": 1}
"""Methods that add to a list, and which argument they add."""
MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Bound:
    """What a name is given once: `value`, or with `each` one after the other of it; None: unknown.
    A list grows by what it is given.
    """

    value: ast.expr | None
    each: bool = False


UNKNOWN = Bound(None)


class NamedCode:
    """A module, all its nodes in the order of the text, and what each name of each scope is given.

    A comprehension belongs to the function around it, `self.x` to the class around it.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.parent: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self._scope: dict[ast.AST, ast.AST] = {}
        self._class: dict[ast.AST, ast.AST | None] = {tree: None}
        self._bound: dict[tuple[ast.AST | None, str], list[Bound]] = {}
        waiting: list[ast.AST] = [tree]
        while waiting:
            node = waiting.pop()
            self.nodes.append(node)
            for child in reversed(list(ast.iter_child_nodes(node))):
                self.parent[child] = node
                self._scope[child] = node if isinstance(node, SCOPES) else self._scope[node]
                self._class[child] = node if isinstance(node, ast.ClassDef) else self._class[node]
                waiting.append(child)
        for node in self.nodes:
            self._note_value(node)
            self._note_name(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the nearest first."""
        while node in self.parent:
            node = self.parent[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST | None:
        """The function around a node, or the module; None around the module."""
        return self._scope.get(node)

    @cached_property
    def _uses(self) -> dict[tuple[ast.AST | None, str], list[ast.Name]]:
        found: dict[tuple[ast.AST | None, str], list[ast.Name]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.setdefault((self.scope(node), node.id), []).append(node)
        return found

    def uses(self, scope: ast.AST | None, name: str) -> list[ast.Name]:
        """Where a function itself reads a name."""
        return self._uses.get((scope, name), [])

    def bounds(self, node: ast.AST) -> list[Bound]:
        """What a name, or `self.x`, is given; empty for anything else and for what is unknown."""
        if isinstance(node, ast.Name):
            scope = self.scope(node)
            while scope is not None:
                if (scope, node.id) in self._bound:
                    return self._bound[scope, node.id]
                scope = self.scope(scope)
            return []
        if isinstance(node, ast.Attribute) and _is_self(node.value):
            return self._bound.get((self._class[node], node.attr), [])
        return []

    def value(self, node: ast.expr) -> ast.expr | None:
        """The expression behind a name that is given one alone; other expressions as they are."""
        for _ in range(MAX_DEPTH):
            if not isinstance(node, (ast.Name, ast.Attribute)):
                return node
            bounds = self.bounds(node)
            if len(bounds) != 1 or bounds[0].each or bounds[0].value is None:
                return None
            node = bounds[0].value
        return None

    def literal(self, node: ast.expr | None) -> str | int | None:
        """The text or whole number that an expression is, None where it is no literal."""
        value = self.value(node) if node is not None else None
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            match value.operand:
                case ast.Constant(value=int() as number):
                    return -number
            return None
        if isinstance(value, ast.Constant) and isinstance(value.value, (str, int)):
            return value.value
        return None

    def text(self, node: ast.expr | None) -> str | None:
        found = self.literal(node)
        return found if isinstance(found, str) else None

    def _note_value(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case ast.AugAssign(target=target) | ast.withitem(optional_vars=ast.expr() as target):
                self._bind(target, None)
            case (
                ast.For(target=target, iter=values)
                | ast.AsyncFor(target=target, iter=values)
                | ast.comprehension(target=target, iter=values)
            ):
                self._bind(target, values, each=True)
            case ast.Call(func=ast.Attribute(value=held, attr=method), args=args):
                if method in GROWERS and len(args) > GROWERS[method]:
                    given = args[GROWERS[method]]
                    self._bind(held, given, grows=method != "extend")

    def _note_name(self, node: ast.AST) -> None:
        match node:
            case ast.arg(arg=name):
                self._add(self.scope(node), name, UNKNOWN)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
                | ast.MatchMapping(rest=str() as name)
            ):
                self._add(self._home(node), name, UNKNOWN)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                for name in names:
                    self._add(self.scope(node), name, UNKNOWN)
                    self._add(self.nodes[0], name, UNKNOWN)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    name = alias.asname or alias.name.split(".")[0]
                    self._add(self._home(node), name, UNKNOWN)

    def _home(self, node: ast.AST) -> ast.AST | None:
        """Where a name that is bound here belongs: to the class where it stands in its body."""
        scope, around = self._scope.get(node), self._class[node]
        inside = around is not None and self._scope.get(around) is scope
        return around if inside else scope

    def _bind(
        self, target: ast.expr, value: ast.expr | None, *, each: bool = False, grows: bool = False
    ) -> None:
        match target:
            case ast.Name(id=name):
                home = self.scope(target) if grows else self._home(target)
                self._add(home, name, _given(value, each, grows))
            case ast.Attribute(value=holder, attr=name) if _is_self(holder):
                self._add(self._class[target], name, _given(value, each, grows))
            case ast.Starred(value=inner):
                self._bind(inner, value, each=each)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                pairs = _pairs(targets, value) if not each else None
                for number, inner in enumerate(targets):
                    if pairs is not None:
                        self._bind(inner, pairs[number])
                    else:
                        self._bind(inner, value, each=True)

    def _add(self, scope: ast.AST | None, name: str, bound: Bound) -> None:
        self._bound.setdefault((scope, name), []).append(bound)


def called(node: ast.AST) -> str:
    """The last name of what is called: `exec` of `request.exec()`; "" for what is no call."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return ""


def arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr] | None:
    """The arguments by name, `names` in their order; None where `*` or `**` hides some."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(not k.arg for k in call.keywords):
        return None
    given = dict(zip(names, call.args, strict=False))
    return given | {keyword.arg or "": keyword.value for keyword in call.keywords}


def _given(value: ast.expr | None, each: bool, grows: bool) -> Bound:
    if grows and value is not None:
        return Bound(ast.List(elts=[value], ctx=ast.Load()))
    return Bound(value, each)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _pairs(targets: list[ast.expr], value: ast.expr | None) -> list[ast.expr] | None:
    """The values for the targets of an unpacking, where both are written out."""
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(targets):
        return None
    starred = any(isinstance(node, ast.Starred) for node in (*targets, *value.elts))
    return None if starred else value.elts
