"""Conditions: `"nsfw.probs[1] < 0.8 and lang == 'en'"`, read by a whitelist, never evaluated."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from mmctl.documents import is_text
from mmctl.pipeline.graph import Json, Wire
from mmctl.pipeline.scope import Scope
from mmctl.tensors import DType

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_NAMED = {"true": True, "false": False}
"""Words of YAML; `True` and `False` are Python's."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor in a condition, with the subscripts that follow it; the batch axis is left out."""

    wire: Wire
    subscripts: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.wire}{''.join(f'[{index}]' for index in self.subscripts)}"


def parse_condition(text: str) -> tuple[Json, tuple[Reference, ...]]:
    """The tree of a condition (graph.Condition says how it looks), and what it reads.

    Raises ValueError with what may not stand in one.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            parsed = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("not a condition") from None
    tree = _tree(parsed.body)
    references = tuple(dict.fromkeys(_references(tree)))
    if not references:
        raise ValueError("it reads no tensor, so it is the same for every row")
    return tree, references


def negation(tree: Json) -> Json:
    return ["not", tree]


def conjunction(trees: list[Json]) -> Json:
    """All of `trees`, of which there is at least one."""
    return ["and", *trees] if len(trees) > 1 else trees[0]


def _tree(node: ast.expr) -> Json:
    match node:
        case ast.BoolOp(op=op, values=values):
            return ["and" if isinstance(op, ast.And) else "or", *map(_tree, values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return negation(_tree(operand))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_leaf(value) for value in (left, *others)]
            return conjunction([[_word(op, node), *values[i : i + 2]] for i, op in enumerate(ops)])
        case _:
            return _leaf(node)


def _word(op: ast.cmpop, node: ast.expr) -> str:
    if type(op) not in _COMPARISONS:
        raise _refused(node)
    return _COMPARISONS[type(op)]


def _leaf(node: ast.expr) -> Json:
    match node:
        case ast.Constant(value=bool() as value):
            return ["value", value]
        case ast.Constant(value=str() as value):
            return ["value", _text(value)]
        case ast.Constant(value=int() | float() as value) if _is_number(value):
            return ["value", value]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            not isinstance(value, bool) and _is_number(value)
        ):
            return ["value", -value]
        case ast.Name(id=name) if name in _NAMED:
            return ["value", _NAMED[name]]
        case _:
            return _reference(node)


def _is_number(value: float) -> bool:
    """Whether a comparison can take it; raises ValueError for an int that no float64 comes near."""
    try:
        return math.isfinite(value)
    except OverflowError:
        raise ValueError("a number may not be longer than float64 holds") from None


def _text(value: str) -> str:
    if is_text(value):
        return value
    raise ValueError("a text may not hold half a character")


def _reference(node: ast.expr, subscripts: tuple[int, ...] = ()) -> Json:
    match node:
        case ast.Name(id=name):
            return ["ref", "", name, list(subscripts)]
        case ast.Attribute(value=ast.Name(id=name), attr=tensor):
            return ["ref", name, tensor, list(subscripts)]
        case ast.Subscript(value=inner, slice=ast.Constant(value=int() as index)) if not isinstance(
            index, bool
        ):
            return _reference(inner, (index, *subscripts))
        case _:
            raise _refused(node)


def _refused(node: ast.expr) -> ValueError:
    return ValueError(f"`{ast.unparse(node)}` may not stand in a condition")


def _references(tree: Json) -> Iterator[Reference]:
    if tree[0] == "ref":
        yield _reference_of(tree)
    elif tree[0] != "value":
        for part in tree[1:]:
            yield from _references(part)


def _reference_of(leaf: Json) -> Reference:
    _, node, tensor, subscripts = leaf
    return Reference(Wire(node, tensor), tuple(subscripts))


def wrong_subscripts(reference: Reference, scope: Scope) -> str | None:
    """Why a reference to a known tensor does not mean one value of a row."""
    kind = scope.type_of(reference.wire)
    if kind is None:
        return None
    if kind.items:
        return f"`{reference.wire}` is the list tensor {kind}: a condition reads one value a row"
    if len(reference.subscripts) != len(kind.dims):
        return (
            f"`{reference}`: one value of `{reference.wire}` ({kind}) takes {len(kind.dims)} "
            f"subscripts, this has {len(reference.subscripts)}"
        )
    for index, dim in zip(reference.subscripts, kind.dims, strict=True):
        if dim != -1 and index >= dim:
            return f"`{reference}`: {index} is past the end of {kind}"
    return None


def wrong_types(tree: Json, scope: Scope) -> Iterator[str]:
    """What is compared that cannot be, and what stands where only true or false can."""
    match tree:
        case ["and" | "or" | "not", *parts]:
            for part in parts:
                yield from wrong_types(part, scope)
        case ["ref" | "value", *_]:
            kind = _kind(tree, scope)
            if kind not in (None, "true or false"):
                yield f"`{_shown(tree)}` is a {kind}, not true or false: compare it with a {kind}"
        case [op, one, other]:
            yield from _wrong_comparison(op, one, other, scope)


def _wrong_comparison(op: str, one: Json, other: Json, scope: Scope) -> Iterator[str]:
    mine, theirs = _kind(one, scope), _kind(other, scope)
    if mine is None or theirs is None:
        return
    compared = f"`{_shown(one)} {op} {_shown(other)}`"
    if mine != theirs:
        yield f"{compared} compares a {mine} with a {theirs}".replace("a true", "true")
    elif mine == "true or false" and op not in ("==", "!="):
        yield f"{compared}: true and false have no order"


def _kind(leaf: Json, scope: Scope) -> str | None:
    """`number`, `text` or `true or false`; None while it is not known."""
    if leaf[0] == "value":
        value = leaf[1]
        return "true or false" if isinstance(value, bool) else _KINDS[type(value)]
    kind = scope.type_of(_reference_of(leaf).wire)
    if kind is None:
        return None
    if kind.dtype.is_text:
        return "text"
    return "true or false" if kind.dtype is DType.BOOL else "number"


_KINDS = {str: "text", int: "number", float: "number"}


def _shown(leaf: Json) -> str:
    return repr(leaf[1]) if leaf[0] == "value" else str(_reference_of(leaf))
