"""What comes into a step -> what its function gets: [batch, *dims], text as `str`.

It comes from Triton, or from another step of the same model in the form in which it would leave
that one: so a function gets the same from both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped import item_lists
    from mmctl.compiler.shipped.step_tensors import TEXT, StepError, Tensor
else:
    import item_lists
    from step_tensors import TEXT, StepError, Tensor

Read = Callable[[Any], Any]


def read_of(source: Tensor, tensor: Tensor, *, is_sent: bool, keep: bool) -> Read | None:
    """How a function's input `tensor` is read from `source`; None: as it is. It raises StepError.

    `is_sent`: Triton sends the source, no other step gives it. `keep`: somebody else may read it
    too, so the function gets a copy. A list's items are views that cannot be written to.
    """
    if tensor.items:
        return _read_of_lists(source, tensor, is_sent=is_sent)
    reads = [_is_fitting(tensor)] if _narrows(source, tensor) else []
    if tensor.word == "string" and not tensor.dims:
        return _one_after_the_other([*reads, lambda rows: _decoded_column(rows, tensor.name)])
    if not tensor.dims and (is_sent or source.dims):
        reads.append(np.ndarray.ravel)
    if tensor.dims and not (is_sent or source.dims):
        reads.append(lambda rows: rows[:, None])
    if tensor.word == "string":
        reads.append(lambda rows: _decoded(rows, tensor.name))
    elif keep:
        reads.append(lambda rows: rows.copy())
    elif not is_sent:
        reads.append(np.ascontiguousarray)
    return _one_after_the_other(reads)


def _one_after_the_other(reads: list[Read]) -> Read | None:
    if len(reads) < 2:
        return reads[0] if reads else None

    def read(value: Any) -> Any:
        for each in reads:
            value = each(value)
        return value

    return read


def _narrows(source: Tensor, tensor: Tensor) -> bool:
    """Whether the source's type allows shapes that the input does not take."""
    return (source.dims or (1,)) != (tensor.dims or (1,)) and not item_lists.fits(
        source.dims or (1,), tensor.dims or (1,)
    )


def _is_fitting(tensor: Tensor) -> Read:
    dims = tensor.dims or (1,)

    def check(rows: Any) -> Any:
        shape = rows.shape[1:] or (1,)
        if not item_lists.fits(shape, dims):
            raise StepError(f"input `{tensor.name}` has shape {list(shape)}, takes {list(dims)}")
        return rows

    return check


def _decoded_column(array: Any, name: str) -> Any:
    """One text a row, whether or not that has an axis."""
    return np.array(_texts(array.ravel().tolist(), name), TEXT)


def _decoded(array: Any, name: str) -> Any:
    return np.array(_texts(array.ravel().tolist(), name), TEXT).reshape(array.shape)


def _texts(items: list[bytes], name: str) -> list[str]:
    try:
        return [item.decode() for item in items]
    except UnicodeDecodeError as error:
        raise StepError(f"`{name}` is not UTF-8: {error.reason} at byte {error.start}") from None


def _read_of_lists(source: Tensor, tensor: Tensor, *, is_sent: bool) -> Read:
    narrows = not item_lists.fits(source.dims, tensor.dims)

    def read(rows: Any) -> list[list[Any]]:
        if is_sent or narrows:
            rows = _unpacked(rows if is_sent else source.sent(rows, batched=True), tensor)
        return [_items(row, tensor) for row in rows]

    return read


def _unpacked(rows: Any, tensor: Tensor) -> list[list[Any]]:
    try:
        return [item_lists.unpack(row, tensor.word, tensor.dims) for row in rows.ravel()]
    except ValueError as error:
        raise StepError(f"`{tensor.name}`: {error}") from None


def _items(items: list[Any], tensor: Tensor) -> list[Any]:
    """Items of one row as a function gets them: nothing that it could change for others."""
    if not tensor.is_text:
        return [_view(item) for item in items]
    if not tensor.dims:
        return _texts(items, tensor.name) if tensor.word == "string" else list(items)
    if tensor.word == "string":
        return [_decoded(item, tensor.name) for item in items]
    return [item.copy() for item in items]


def _view(item: Any) -> Any:
    view = item.view()
    view.flags.writeable = False
    return view
