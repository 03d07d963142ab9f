"""Values to ask a model with: given ones, those of its warm-up, else small made-up ones. Pure.

Made-up values are the same in every run: floats around 0, whole numbers that are safe as indices,
short texts. Where these are refused, blander ones are tried.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from mmctl.client.requests import arrays_for
from mmctl.client.samples import Sample, naming
from mmctl.tensors import Array, Signature, TensorSpec
from mmctl.trials.runcheck.model import Model, WarmUp
from mmctl.trials.runcheck.questions import Inputs
from mmctl.wire import decode

FIRST_SIZES = (4, 1, 2, 8)
"""Lengths for free axes, tried always; the first is what other questions are asked with."""

MORE_SIZES = (16, 32, 64, 224)
"""Lengths that are tried when none of the first was taken."""

MOST_SIZES = 6
MOST_BYTES = 24 * 1024 * 1024
"""What the inputs of one request may take."""

MOST_ROW_BYTES = 128 * 1024 * 1024
"""A model whose single row takes more is not asked with made-up values."""

TEXT_BYTES = 16
TEXTS = ("a short text", "another text", "three plain words", "one more")


class Style(StrEnum):
    """`small` fits where a whole number is one of two, or a float from 0 to 1."""

    PLAIN = "plain"
    SMALL = "small"
    ONES = "ones"


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Rows to ask with. `row(i)` has no batch axis; every number has a row.

    `own` values are the user's: a model that refuses them is wrong. `size` is the length of free
    axes, None where nothing is free.
    """

    label: str
    row: Callable[[int], Inputs]
    own: bool = False
    size: int | None = None
    style: Style = Style.PLAIN
    sample: Sample | None = None

    def inputs(self, rows: Sequence[int], max_batch: int, skip: Sequence[str] = ()) -> Inputs:
        """A request: the rows one after the other, or the first alone without a batch axis."""
        found = {number: self.row(number) for number in set(rows)}
        first = found[rows[0]]
        names = [name for name in first if name not in skip]
        if not max_batch:
            return {name: first[name] for name in names}
        return {name: np.stack([found[number][name] for number in rows]) for name in names}


def own_values(
    model: Model, sample: Sample | None, warm_ups: Mapping[str, Mapping[str, bytes]]
) -> Iterator[Values]:
    """What the user says the model takes. `warm_ups` are the contents of files by input, for each
    warm-up that counts. Raises InputError for a sample that does not fit the model.
    """
    if sample is not None:
        with naming(sample):
            arrays = arrays_for(model.name, sample.inputs, model.signature)
        yield Values(f"sample `{sample.name}`", _rows_of(arrays, model), own=True, sample=sample)
    for warm_up in model.warm_ups:
        if warm_up.name in warm_ups:
            row = _warm_row(model, warm_up, warm_ups[warm_up.name])
            if row is not None:
                yield Values(f"warm-up `{warm_up.name}`", _always(row), own=True)


def made_up(model: Model, *, more: bool = False) -> Iterator[Sequence[Values]]:
    """Groups of values: one group for a length of the free axes, blander values last.

    `more` gives those that are for models which have refused all others.
    """
    for warm_up in model.warm_ups:
        if not more and _says_shapes(model, warm_up):
            yield _group(model, None, warm_up.shapes)
    for size in _sizes(model, more):
        limit = MOST_ROW_BYTES if size is None else MOST_BYTES
        if _row_bytes(model.signature, size or 1) <= limit:
            yield _group(model, size, {})


def batch_sizes(model: Model, values: Values) -> list[int]:
    """The numbers of rows above 1 to ask with: 2, and all that the model takes, as far as it is
    no burden to send.
    """
    most = _most_rows(model, values)
    return list(dict.fromkeys(count for count in (2, most) if 1 < count <= most))


def _most_rows(model: Model, values: Values) -> int:
    row = values.row(0)
    size = sum(a.size * (TEXT_BYTES if a.dtype == object else a.itemsize) for a in row.values())
    return min(model.max_batch, max(1, MOST_BYTES // max(size, 1)))


def _sizes(model: Model, more: bool) -> tuple[int | None, ...]:
    if not model.free:
        return () if more else (None,)
    if more:
        return MORE_SIZES
    return tuple(dict.fromkeys([*FIRST_SIZES, *model.sizes[:MOST_SIZES]]))


def _group(
    model: Model, size: int | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Values, ...]:
    def values(style: Style) -> Values:
        def row(number: int) -> Inputs:
            return {
                spec.name: made_up_row(
                    spec, shapes.get(spec.name) or _filled(spec, size), number, style
                )
                for spec in model.signature.inputs
            }

        return Values("generated values", row, size=size, style=style)

    return tuple(values(style) for style in Style)


def made_up_row(spec: TensorSpec, shape: tuple[int, ...], number: int, style: Style) -> Array:
    """One row of a tensor; the same name and number always give the same values."""
    rng = np.random.default_rng((zlib.crc32(spec.name.encode()), number))
    if spec.type.dtype.is_text:
        return _texts(shape, number, style)
    kind = spec.type.dtype.numpy
    if style is Style.ONES or "mask" in spec.name.lower():
        return np.ones(shape, kind)
    if kind.kind == "b":
        return np.asarray((np.arange(math.prod(shape)).reshape(shape) + number) % 2 == 0)
    if kind.kind != "f":
        return rng.integers(0, 2 if style is Style.SMALL else 4, shape).astype(kind)
    drawn = rng.random(shape) if style is Style.SMALL else rng.standard_normal(shape)
    return drawn.astype(kind)


def _texts(shape: tuple[int, ...], number: int, style: Style) -> Array:
    known = TEXTS if style is Style.PLAIN else ("0", "1") if style is Style.SMALL else ("1",)
    texts = np.empty(math.prod(shape), dtype=object)
    texts[:] = [known[(number + place) % len(known)] for place in range(len(texts))]
    return texts.reshape(shape)


def _filled(spec: TensorSpec, size: int | None) -> tuple[int, ...]:
    return tuple(dim if dim > 0 else size or 1 for dim in spec.type.triton_dims)


def _row_bytes(signature: Signature, size: int) -> int:
    return sum(
        math.prod(_filled(spec, size))
        * (TEXT_BYTES if spec.type.dtype.is_text else spec.type.dtype.numpy.itemsize)
        for spec in signature.inputs
    )


def _rows_of(arrays: Inputs, model: Model) -> Callable[[int], Inputs]:
    """Rows of a request, over again where more are asked for."""
    if not model.max_batch:
        return _always(arrays)
    count = min((len(array) for array in arrays.values()), default=1)
    return lambda number: {name: array[number % count] for name, array in arrays.items()}


def _always(arrays: Inputs) -> Callable[[int], Inputs]:
    return lambda _: arrays


def _says_shapes(model: Model, warm_up: WarmUp) -> bool:
    """Whether it gives the free axes of every input a length."""
    shapes = warm_up.shapes
    return model.free and all(s.name in shapes and -1 not in shapes[s.name] for s in _free(model))


def _free(model: Model) -> list[TensorSpec]:
    return [spec for spec in model.signature.inputs if -1 in spec.type.dims]


def _warm_row(model: Model, warm_up: WarmUp, files: Mapping[str, bytes]) -> Inputs | None:
    """The row that a warm-up sends; None where its files cannot be read so."""
    row = {}
    for spec in model.signature.inputs:
        if (shape := warm_up.shapes.get(spec.name)) is None:
            continue
        if spec.name in files:
            try:
                row[spec.name] = decode(files[spec.name], spec.type.dtype.wire, shape)
            except ValueError:
                return None
        else:
            row[spec.name] = made_up_row(spec, shape, 0, Style.PLAIN)
            if spec.name in warm_up.zeros:
                empty = b"" if spec.type.dtype.is_text else 0
                row[spec.name] = np.full(shape, empty, spec.type.dtype.numpy)
    return row if row else None
