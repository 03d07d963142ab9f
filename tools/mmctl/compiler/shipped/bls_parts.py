"""A node's rows -> the calls that serve them, and their answers -> its outputs.

Part of the runner of the bls form (model.py). Nothing here waits or sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_calls import NodeError
    from mmctl.compiler.shipped.bls_plan import Input, Node
    from mmctl.compiler.shipped.bls_values import (
        OBJECT,
        Arrays,
        Lists,
        Tensor,
        array_of,
        merged,
        objects,
    )  # fmt: skip
else:
    from bls_calls import NodeError
    from bls_plan import Input, Node
    from bls_values import OBJECT, Arrays, Lists, Tensor, array_of, merged, objects


class Part:
    """What goes into one call. `places` are row numbers, or (row, item) pairs under `foreach`.

    `batched` says that rows are stacked; a callee without batch axis gets one at a time.
    `attempts` are the calls under way for it, `retries` how many were made once more. `keys` are
    those under which its answer is to be kept, `waits` says that a call of others may answer it,
    `is_found` that it was not meant to be called.
    """

    __slots__ = (
        "attempts", "batched", "inputs", "is_found", "keys", "outputs", "places", "retries",
        "waits",
    )  # fmt: skip

    def __init__(self, inputs: Arrays, places: Any, *, batched: bool) -> None:
        self.inputs, self.places, self.batched = inputs, places, batched
        self.outputs: Arrays | None = None
        self.attempts: list[Any] = []
        self.retries = 0
        self.keys: list[bytes] = []
        self.is_found = self.waits = False

    def some(self, indices: list[int]) -> Part:
        """A part with these of its places, itself when that is all."""
        if len(indices) == len(self.places):
            return self
        inputs = {name: array_of(value)[indices] for name, value in self.inputs.items()}
        return Part(inputs, [self.places[index] for index in indices], batched=self.batched)


def split(node: Node, inputs: Sequence[Input], values: Arrays, rows: Any) -> Iterator[Part]:
    """Parts for the rows numbered `rows`, whose values are `values` by input.

    A node that lacks every value gets row by row: its function cannot tell how many there are.
    """
    if node.foreach:
        yield from _by_item(node, inputs, values, rows)
        return
    sent = {item.name: item.sent(values[item.name]) for item in inputs}
    most = 1 if all(item.rows for item in inputs) else node.max_batch
    if not node.max_batch:
        yield from _by_row(sent, rows)
    elif len(rows) <= most:
        yield Part(sent, rows, batched=True)
    else:
        for start in range(0, len(rows), most):
            span = slice(start, start + most)
            some = {name: array_of(value)[span] for name, value in sent.items()}
            yield Part(some, rows[span], batched=True)


def _by_row(sent: Arrays, rows: Any) -> Iterator[Part]:
    arrays = {name: array_of(value) for name, value in sent.items()}
    for index in range(len(rows)):
        row = {name: array[index] for name, array in arrays.items()}
        yield Part(row, rows[index : index + 1], batched=False)


def _by_item(node: Node, inputs: Sequence[Input], values: Arrays, rows: Any) -> Iterator[Part]:
    """Items of one shape go together, whatever row they are of: as few calls as can be."""
    each = {item.name: item.source for item in inputs if item.each}
    lists = {name: source.lists(values[name]) for name, source in each.items()}
    whole = {i.name: array_of(i.sent(values[i.name])) for i in inputs if not i.each}
    most = node.max_batch or 1
    for members in _by_shape(lists):
        for start in range(0, len(members), most):
            some = members[start : start + most]
            sent = {
                name: _stacked([found[row][item] for row, item in some], each[name])
                for name, found in lists.items()
            }
            sent |= {name: array[[row for row, _ in some]] for name, array in whole.items()}
            if not node.max_batch:
                sent = {name: array[0] for name, array in sent.items()}
            places = [(int(rows[row]), item) for row, item in some]
            yield Part(sent, places, batched=node.max_batch > 0)


def _by_shape(lists: Mapping[str, list[list[Any]]]) -> list[list[tuple[int, int]]]:
    """Pairs (row, item), together those whose items have the same shapes."""
    counts = [[len(items) for items in rows] for rows in lists.values()]
    if any(other != counts[0] for other in counts):
        names = ", ".join(f"`{name}`" for name in lists)
        raise NodeError(f"lists that go item by item differ in length: {names} have {counts}")
    groups: dict[Any, list[tuple[int, int]]] = {}
    for row, count in enumerate(counts[0]):
        for item in range(count):
            shapes = tuple(np.shape(rows[row][item]) for rows in lists.values())
            groups.setdefault(shapes, []).append((row, item))
    return list(groups.values())


def _stacked(items: list[Any], source: Tensor) -> Any:
    """[count, ...]; one value per item has an axis of 1."""
    if not source.dims:
        return objects(items) if source.is_text else np.array(items, source.numpy)[:, None]
    return np.stack(items)


def check(node: Node, part: Part, outputs: Arrays) -> Arrays:
    """Raises NodeError when an answer is not what the model's signature says."""
    for tensor in node.outputs:
        if tensor.name not in outputs:
            raise NodeError(f"it gave no output `{tensor.name}`")
        packed = tensor.items and not node.foreach
        dims, dtype = ((1,), OBJECT) if packed else (tensor.dims or (1,), tensor.numpy)
        wanted = (len(part.places), *dims) if part.batched else dims
        value = outputs[tensor.name]
        shape = value.shape
        if shape != wanted and not _fits(shape, wanted):
            raise NodeError(
                f"its output `{tensor.name}` has shape {list(shape)}, expected {list(wanted)}"
            )
        # Text is not looked at: it would be decoded for that, and a pass-through need not be.
        if not tensor.is_text and not packed and value.dtype != dtype:
            raise NodeError(f"its output `{tensor.name}` is {value.dtype}, expected {dtype}")
    return outputs


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(
        size in (-1, got) for got, size in zip(shape, wanted, strict=True)
    )


def collect(node: Node, parts: Sequence[Part], rows: Sequence[int]) -> Arrays:
    """A node's outputs over `rows`, from the answers to its parts. Raises NodeError."""
    if node.foreach:
        return {tensor.name: _items(parts, tensor, rows) for tensor in node.outputs}
    if len(parts) == 1 and parts[0].batched:
        return parts[0].outputs or {}
    return {
        tensor.name: merged([(part.places, _rows(part, tensor.name)) for part in parts])
        for tensor in node.outputs
    }


def _rows(part: Part, name: str) -> Any:
    array = array_of((part.outputs or {})[name])
    return array if part.batched else array[None]


def _items(parts: Sequence[Part], tensor: Tensor, rows: Sequence[int]) -> Lists:
    """Answers for items, back in the rows and the order that they came from."""
    found: dict[int, dict[int, Any]] = {row: {} for row in rows}
    for part in parts:
        for (row, item), value in zip(part.places, _rows(part, tensor.name), strict=True):
            found[row][item] = value if tensor.dims else value[0]
    return Lists([[items[number] for number in range(len(items))] for items in found.values()])
