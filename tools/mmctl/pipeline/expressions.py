"""Conditions: `"nsfw.probs[1] < 0.8 and lang == 'en'"`, read by a whitelist, never evaluated."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from mmctl.pipeline.graph import Wire
from mmctl.pipeline.scope import Scope

_PLAIN = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Eq,
          ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Load)  # fmt: skip
"""Nodes of the grammar that need no look of their own."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor in a condition, with the subscripts that follow it; the batch axis is left out."""

    wire: Wire
    subscripts: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.wire}{''.join(f'[{index}]' for index in self.subscripts)}"


def parse_condition(text: str) -> tuple[Reference, ...]:
    """The references of a condition. Raises ValueError with what may not stand in one."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("not a condition") from None
    return tuple(_references(tree.body))


def _references(node: ast.AST) -> Iterator[Reference]:
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield _reference(node)
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        case _ if isinstance(node, _PLAIN):
            for child in ast.iter_child_nodes(node):
                yield from _references(child)
        case _:
            raise ValueError(f"`{ast.unparse(node)}` may not stand in a condition")


def _reference(node: ast.AST, subscripts: tuple[int, ...] = ()) -> Reference:
    match node:
        case ast.Name(id=name):
            return Reference(Wire("", name), subscripts)
        case ast.Attribute(value=ast.Name(id=name), attr=tensor):
            return Reference(Wire(name, tensor), subscripts)
        case ast.Subscript(value=inner, slice=ast.Constant(value=int() as index)):
            return _reference(inner, (index, *subscripts))
        case _:
            raise ValueError(f"`{ast.unparse(node)}` may not stand in a condition")


def wrong_subscripts(reference: Reference, scope: Scope) -> str | None:
    """What is wrong with the subscripts of a known tensor."""
    kind = scope.type_of(reference.wire)
    if kind is None:
        return None
    if len(reference.subscripts) != len(kind.dims):
        return (
            f"`{reference}`: one value of `{reference.wire}` ({kind}) takes {len(kind.dims)} "
            f"subscripts, this has {len(reference.subscripts)}"
        )
    for index, dim in zip(reference.subscripts, kind.dims, strict=True):
        if dim != -1 and index >= dim:
            return f"`{reference}`: {index} is past the end of {kind}"
    return None
