"""Which rows a node runs: absence and failure flow along edges, conditions leave rows out.

Part of the runner of the bls form (model.py). Nothing here waits or sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_calls import NodeError
    from mmctl.compiler.shipped.bls_conditions import conjuncts, evaluate, references
    from mmctl.compiler.shipped.bls_parts import Part, split
    from mmctl.compiler.shipped.bls_plan import Input, Node
    from mmctl.compiler.shipped.bls_values import Arrays, Result, array_of, mask_of, merged
else:
    from bls_calls import NodeError
    from bls_conditions import conjuncts, evaluate, references
    from bls_parts import Part, split
    from bls_plan import Input, Node
    from bls_values import Arrays, Result, array_of, mask_of, merged

Results = Mapping[str, Result]
"""What the nodes that are done have left; under "" the inputs of the pipeline."""

NO_ROWS = np.zeros(0, int)


class Layout:
    """Which rows a node runs (None: all), in groups that have the same inputs; which fail."""

    __slots__ = ("error", "failed", "groups", "rows")

    def __init__(
        self,
        rows: Any,
        groups: list[tuple[Any, list[Input]]],
        failed: Any = None,
        error: NodeError | None = None,
    ) -> None:
        self.rows, self.groups, self.failed, self.error = rows, groups, failed, error

    def lost(self, error: NodeError, batch: int) -> Layout:
        """The rows that were to run fail too."""
        rows = np.arange(batch) if self.rows is None else self.rows
        failed = rows if self.failed is None else np.union1d(rows, self.failed)
        return Layout(NO_ROWS, [], failed, error)


def layout_of(node: Node, results: Results, batch: int) -> Layout:
    """Rows that the condition leaves out are absent, whatever feeds them; then a failed input
    fails its row, and an absent one makes it absent.
    """
    if node.is_plain and all(results[name].is_whole for name in node.sources):
        return Layout(None, [(None, node.inputs)])
    picked, failed, error = _condition(node, results, batch)
    for name in node.hard:
        result = results[name]
        if result.failed is not None and (new := picked & mask_of(result.failed, batch)).any():
            failed, error = failed | new, error or result.error
    runs = picked & ~failed
    for item in node.inputs:
        if not item.optional:
            runs &= results[item.node].has(batch)
    groups = list(_groups(node, runs, results))
    return Layout(_numbers(runs), groups, np.flatnonzero(failed) if failed.any() else None, error)


def _numbers(mask: Any) -> Any:
    return None if mask.all() else np.flatnonzero(mask)


def _condition(node: Node, results: Results, batch: int) -> tuple[Any, Any, NodeError | None]:
    """Rows that `when` picks, those on which it cannot be told (they count as picked), why.

    Of what is joined by `and`, a row is asked from left to right until something is false.
    """
    picked, failed, error = np.ones(batch, bool), np.zeros(batch, bool), None
    for tree in conjuncts(node.when):
        known = np.ones(batch, bool)
        for name in dict.fromkeys(name for name, _ in references(tree)):
            result = results[name]
            known &= result.has(batch)
            if result.failed is not None and (new := picked & mask_of(result.failed, batch)).any():
                failed, error = failed | new, error or result.error
        picked &= known & ~failed
        if picked.any():
            rows = _numbers(picked)
            found = evaluate(tree, _look(results, rows))
            picked[slice(None) if rows is None else rows] = found
    return picked | failed, failed, error


def _look(results: Results, rows: Any) -> Callable[[str, str], Any]:
    return lambda node, tensor: array_of(results[node].at(tensor, rows))


def _groups(node: Node, runs: Any, results: Results) -> Iterator[tuple[Any, list[Input]]]:
    """Rows (None: all) by which optional inputs they have."""
    if not runs.any():
        return
    if not node.optional:
        yield _numbers(runs), node.inputs
        return
    code = np.zeros(len(runs), int)
    for bit, item in enumerate(node.optional):
        if item.node in results:
            code |= results[item.node].has(len(runs)).astype(int) << bit
    for pattern in np.unique(code[runs]).tolist():
        given = [item for bit, item in enumerate(node.optional) if pattern >> bit & 1]
        inputs = [item for item in node.inputs if not item.optional or item in given]
        yield _numbers(runs & (code == pattern)), inputs


def parts_of(node: Node, layout: Layout, results: Results, batch: int) -> Iterator[Part]:
    """The calls that serve a node's rows."""
    for rows, inputs in layout.groups:
        values = {i.name: results[i.node].at(i.tensor, rows) for i in inputs}
        yield from split(node, inputs, values, range(batch) if rows is None else rows.tolist())


def answers(node: Node, results: Results) -> int:
    """How many nodes of the quorum have a value on some row, and failed on none."""
    found = [results[name] for name in node.quorum if name in results]
    return sum(r.failed is None and (r.rows is None or len(r.rows) > 0) for r in found)


def has_decided_quorum(node: Node, results: Results) -> bool:
    """Enough nodes have answered, or too many have not and are done."""
    found = answers(node, results)
    open_ = sum(name not in results for name in node.quorum)
    return found >= node.quorum_need or found + open_ < node.quorum_need


def merge_layout(node: Node, results: Results, batch: int) -> Layout:
    """Rows on which some branch has a value, and none has failed; there are no groups."""
    has, failed, error = np.zeros(batch, bool), np.zeros(batch, bool), None
    for name in node.branches:
        result = results[name]
        has |= result.has(batch)
        if result.failed is not None:
            failed |= mask_of(result.failed, batch)
            error = error or result.error
    rows = _numbers(has & ~failed)
    return Layout(rows, [], np.flatnonzero(failed) if failed.any() else None, error)


def merge(node: Node, results: Results, layout: Layout, batch: int) -> Arrays:
    """Row by row the first branch that has a value. Raises NodeError when rows differ in shape."""
    left, pieces = np.ones(batch, bool) if layout.rows is None else mask_of(layout.rows, batch), []
    for name in node.branches:
        if (new := results[name].has(batch) & left).any():
            pieces.append((np.flatnonzero(new), results[name]))
            left &= ~new
    if len(pieces) == 1:
        rows, result = pieces[0]
        return {tensor.name: result.at(tensor.name, rows) for tensor in node.outputs}
    return {
        t.name: merged([(rows, t.plain(result.at(t.name, rows))) for rows, result in pieces])
        for t in (node.outputs if pieces else ())
    }


def defaulted(node: Node, ran: Result, batch: int) -> Result:
    """What `on_error` declares, on the rows that have failed."""
    count = len(ran.failed)
    if not len(ran.rows):
        arrays = {tensor.name: tensor.defaults(count) for tensor in node.outputs}
        return Result(arrays, None if count == batch else ran.failed)
    arrays = {}
    for tensor in node.outputs:
        value = tensor.plain(ran.arrays[tensor.name])
        filled = tensor.defaults(count, None if tensor.items else value.shape[1:])
        arrays[tensor.name] = merged([(ran.rows, value), (ran.failed, filled)])
    rows = np.union1d(ran.rows, ran.failed)
    return Result(arrays, None if len(rows) == batch else rows)
