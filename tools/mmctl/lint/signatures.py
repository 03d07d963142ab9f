"""What the callers of a model may rely on: its inputs and outputs, as far as files tell.

What only a server can tell, because a backend completes the config while it loads, is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmctl.lint.code.python import code_of
from mmctl.lint.completion import completed, max_batch_known, sides_known
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model
from mmctl.triton.schema import word_of


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input or output. `data_type` as configs write it, "" where the config does not say.

    `dims` leave out the batch axis and are None where the config does not say. `reshape` is what
    the model itself sees, None where that is `dims`.
    """

    name: str
    data_type: str
    dims: tuple[int, ...] | None
    reshape: tuple[int, ...] | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Io:
    """A model for its callers. `max_batch` 0: it does not batch. `grows`: its own code may add
    tensors while it loads, so that a name that is not here may be right all the same.
    """

    inputs: Mapping[str, IoTensor] | None
    outputs: Mapping[str, IoTensor] | None
    max_batch: int | None
    decoupled: bool
    grows: bool = False


def agree(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal, -1 standing for any size."""
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )


@remembered
def io_of(model: Model) -> Io:
    """What is known of a model without a server."""
    message = completed(model)
    if model.is_ensemble:  # Triton completes no ensemble: what is not declared is not there
        inputs_known = outputs_known = batch_known = True
        grows = False
    else:
        inputs_known, outputs_known = sides_known(model)
        code = code_of(model)
        grows = code is not None and code.completes_config
        batch_known = max_batch_known(model) and not grows
    return Io(
        inputs=_tensors(message.input) if inputs_known else None,
        outputs=_tensors(message.output) if outputs_known else None,
        max_batch=message.max_batch_size if batch_known else None,
        decoupled=message.model_transaction_policy.decoupled,
        grows=grows,
    )


def _tensors(rows: Iterable[Any]) -> Mapping[str, IoTensor]:
    return {row.name: _tensor(row) for row in rows}


def _tensor(row: Any) -> IoTensor:
    return IoTensor(
        name=row.name,
        data_type=word_of(row, "data_type") if row.data_type else "",
        dims=_dims(row.dims) or None,
        reshape=_dims(row.reshape.shape) if row.HasField("reshape") else None,
        optional=getattr(row, "optional", False),
    )


def _dims(numbers: Iterable[int]) -> tuple[int, ...] | None:
    """None where a number is none that Triton takes: that is a mistake of its own."""
    dims = tuple(numbers)
    return dims if all(dim >= 1 or dim == -1 for dim in dims) else None
