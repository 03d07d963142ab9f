"""More rows than a model takes at once: one request -> several, their answers -> one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from mmctl.errors import InferenceError, MmctlError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Array


def parts_of(request: InferRequest, max_batch: int) -> tuple[InferRequest, ...]:
    """The rows in order, at most `max_batch` each; the request itself where it fits."""
    if not max_batch or (rows := rows_of(request)) <= max_batch:
        return (request,)
    return tuple(
        replace(
            request,
            inputs={n: array[first : first + max_batch] for n, array in request.inputs.items()},
        )
        for first in range(0, rows, max_batch)
    )


def joined(
    parts: Sequence[InferRequest], ends: Sequence[InferResponse | Exception]
) -> InferResponse:
    """One answer out of those of all parts, in their order. Raises the first error, which then
    says which rows it is about, and InferenceError where the answers do not fit together.
    """
    answers: list[InferResponse] = []
    for number, end in enumerate(ends):
        if isinstance(end, Exception):
            raise _placed(end, _told(parts, number))
        answers.append(end)
    first = answers[0]
    for number, answer in enumerate(answers):
        _refuse_misfit(parts, number, answer, first)
    outputs = {name: np.concatenate([a.outputs[name] for a in answers]) for name in first.outputs}
    return InferResponse(outputs, first.model, first.version)


def same_version(ends: Sequence[InferResponse | Exception]) -> bool:
    """Whether those that did answer are of one version."""
    return len({end.version for end in ends if isinstance(end, InferResponse)}) < 2


def rows_of(request: InferRequest) -> int:
    """The length of the batch axis, of a request to a model that has one."""
    for array in request.inputs.values():
        return len(array)
    return 0


def _refuse_misfit(
    parts: Sequence[InferRequest], number: int, answer: InferResponse, first: InferResponse
) -> None:
    model, where = parts[number].model, _told(parts, number)
    if answer.outputs.keys() != first.outputs.keys():
        raise InferenceError(f"model `{model}`, {where}: other outputs than for the first rows")
    if answer.version != first.version:
        raise InferenceError(
            f"model `{model}`, {where}: version {answer.version} answered, and version "
            f"{first.version} the first rows",
            hint="ask again: the model was exchanged meanwhile",
        )
    rows = rows_of(parts[number])
    for name, array in answer.outputs.items():
        wanted = (rows, *first.outputs[name].shape[1:])
        if array.shape != wanted:
            raise InferenceError(
                f"model `{model}`, {where}: output `{name}` has shape {_shown(array)}, and "
                f"{list(wanted)} is what joins the rows before it",
                hint=f"send at most {rows_of(parts[0])} rows in one request",
            )


def _shown(array: Array) -> str:
    return str(list(array.shape))


def _told(parts: Sequence[InferRequest], number: int) -> str:
    """Which rows a part has; people count from 1."""
    sizes = [rows_of(part) for part in parts]
    before = sum(sizes[:number])
    return f"rows {before + 1} to {before + sizes[number]} of {sum(sizes)}"


def _placed(error: Exception, rows: str) -> Exception:
    if not isinstance(error, MmctlError):
        return error
    placed = copy(error)
    placed.message = f"{rows}: {error.message}"
    placed.args = (placed.message,)
    return placed
