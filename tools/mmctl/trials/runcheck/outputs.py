"""Answers against the outputs that the config declares, which Triton does not check. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mmctl.tensors import Array, TensorSpec, dtype_of
from mmctl.trials.runcheck.model import Model
from mmctl.trials.runcheck.questions import Outputs


def find_faults(model: Model, outputs: Outputs, rows: int | None) -> Iterator[tuple[str, str]]:
    """Name of an output and what is wrong with it. `rows` None: of how many rows nobody can say.

    An output of a stream that is not there may be in another answer: see `missing`.
    """
    for spec in model.signature.outputs:
        if spec.name in outputs:
            fault = _fault(spec, outputs[spec.name], model.max_batch, rows)
            if fault:
                yield spec.name, fault


def missing(model: Model, answers: tuple[Outputs, ...]) -> list[str]:
    """Declared outputs that no answer has; none where there is no answer at all."""
    came = {name for outputs in answers for name in outputs}
    return [spec.name for spec in model.signature.outputs if answers and spec.name not in came]


def _fault(spec: TensorSpec, array: Array, max_batch: int, rows: int | None) -> str | None:
    came = dtype_of(array.dtype)
    if not came.feeds(spec.type.dtype):
        return f"is {came.triton}, and {spec.type.dtype.triton} is declared"
    dims = spec.type.triton_dims
    wanted = (-1 if rows is None else rows, *dims) if max_batch else dims
    fits = len(array.shape) == len(wanted) and all(
        want in (-1, axis) for axis, want in zip(array.shape, wanted, strict=True)
    )
    if fits:
        return None
    asked = f" for {_count(rows)}" if max_batch and rows is not None else ""
    return f"has the shape {_shown(array.shape)}, and {_shown(wanted)} is declared{asked}"


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
