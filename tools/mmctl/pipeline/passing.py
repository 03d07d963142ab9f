"""What a step function does with its parameters, as far as its syntax tree proves it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mmctl.pipeline.stepfile import returns_of

HARMLESS_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "astype", "copy", "flatten", "item", "max", "mean", "min",
    "ravel", "reshape", "squeeze", "std", "sum", "tobytes", "tolist", "transpose",
})  # fmt: skip
"""Methods of numpy's arrays that leave the array as it is."""
HARMLESS_CALLS = frozenset({
    "any", "bool", "dict", "enumerate", "float", "int", "len", "list", "map", "max", "min",
    "print", "range", "reversed", "set", "sorted", "str", "sum", "tuple", "zip",
})  # fmt: skip
"""Functions of Python that leave what they are given as it is."""


def passed_on(function: ast.FunctionDef) -> dict[str, str]:
    """Output -> the parameter that it is, untouched, whatever happens in the function.

    Only what can be proven: every return is a dict that is written out, with the bare parameter at
    that key, and nothing in the function can have given the name another value or changed the
    array.
    """
    shown = [_written_out(statement) for statement in returns_of(function)]
    if not shown or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
        return {}
    first, *others = shown
    parameters = _parameters(function) - _touched(function)
    return {
        key: value
        for key, value in (first or {}).items()
        if value in parameters
        and all(other is not None and other.get(key) == value for other in others)
    }


def unread(function: ast.FunctionDef) -> frozenset[str]:
    """Parameters whose names stand nowhere in the function."""
    statements = [node for part in function.body for node in ast.walk(part)]
    if any(
        isinstance(n, ast.Name) and n.id in ("locals", "eval", "exec", "vars") for n in statements
    ):
        return frozenset()
    return _parameters(function) - {n.id for n in statements if isinstance(n, ast.Name)}


def _parameters(function: ast.FunctionDef) -> frozenset[str]:
    arguments = function.args
    return frozenset(a.arg for a in (*arguments.args, *arguments.kwonlyargs))


def _written_out(statement: ast.Return) -> dict[str, str] | None:
    """Key -> name, for the keys of a returned dict whose values are bare names."""
    if not isinstance(statement.value, ast.Dict):
        return None
    pairs = list(zip(statement.value.keys, statement.value.values, strict=True))
    if any(not isinstance(key, ast.Constant) for key, _ in pairs):
        return None
    return {
        key.value: value.id
        for key, value in pairs
        if isinstance(key, ast.Constant)
        and isinstance(key.value, str)
        and isinstance(value, ast.Name)
    }


def _touched(function: ast.FunctionDef) -> set[str]:
    """Names that may stand for another value at the end, or for an array that was changed, by
    that name or by one of what was made of it: a row, a view, another name.
    """
    rebound: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                rebound.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                rebound.update(names)
            case _:
                pass
    changed = {name for node in ast.walk(function) for name in _changed(node)}
    made_of = [pair for node in ast.walk(function) for pair in _made(node)]
    before = -1
    while before != len(changed):
        before = len(changed)
        for made, source in made_of:
            if made & changed:
                changed |= source
    return rebound | changed


def _changed(node: ast.AST) -> Iterator[str]:
    """Names whose arrays this may change in place."""
    match node:
        case ast.Attribute() | ast.Subscript() if not isinstance(node.ctx, ast.Load):
            yield from _names(node.value)
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name
        case ast.Call(func=ast.Name(id=called)) if called in HARMLESS_CALLS:
            pass
        case ast.Call(func=called):
            if isinstance(called, ast.Attribute) and called.attr not in HARMLESS_METHODS:
                yield from _names(called.value)
            yield from _given(node)
        case _:
            pass


def _made(node: ast.AST) -> Iterator[tuple[set[str], set[str]]]:
    """Names, and the names of what they are made of."""
    match node:
        case ast.For() | ast.comprehension():
            yield _all(node.target), _all(node.iter)
        case ast.Assign():
            yield set().union(*map(_all, node.targets)), _all(node.value)
        case ast.NamedExpr() | ast.AnnAssign() if node.value is not None:
            yield _all(node.target), _all(node.value)
        case ast.withitem() if node.optional_vars is not None:
            yield _all(node.optional_vars), _all(node.context_expr)
        case _:
            pass


def _all(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _given(call: ast.Call) -> Iterator[str]:
    """Names that a function gets as they are."""
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        yield from _names(value.value if isinstance(value, ast.Starred) else value)


def _names(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute | ast.Subscript):
        yield from _names(node.value)
