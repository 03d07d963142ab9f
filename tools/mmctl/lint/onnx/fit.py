"""A config beside its ONNX file, and which shapes of the two do not fit.

What fits is decided by `triton.onnx_backend`, which the server's own backend obeys; here every
misfit is found, not the first one, and gets the code of the rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mmctl.diagnostics import Position, Severity
from mmctl.lint.completion import (
    Completed,
    Served,
    complete_config,
    is_onnx,
    onnx_config,
    served_files,
    tensors,
)
from mmctl.lint.onnx.file import OnnxFile
from mmctl.lint.onnx.graph import Port, Shape
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Find, Mistake
from mmctl.lint.signatures import agree
from mmctl.triton.onnx_backend import Config, LoadError, Tensor, check_shape, shape_text


@dataclass(frozen=True, eq=False)
class Fit:
    """A model's config beside one of its files; `config` is the completed one."""

    model: Model
    served: Served
    file: OnnxFile
    done: Completed

    @property
    def config(self) -> Config:
        return self.done.config

    @property
    def batching(self) -> bool:
        return self.config.max_batch > 0

    @property
    def name(self) -> str:
        """The file as messages call it."""
        return self.served.path.name

    @cached_property
    def ports(self) -> Mapping[str, Mapping[str, Port]]:
        """The tensors of the file by side; an input with a default is an input too."""
        return {
            "input": {port.name: port for port in (*self.file.inputs, *self.file.overridable)},
            "output": {port.name: port for port in self.file.outputs},
        }

    @cached_property
    def pairs(self) -> tuple[tuple[str, Tensor, Port], ...]:
        """Side, tensor of the config and tensor of the file, where both have one of that name."""
        given = (("input", self.config.inputs), ("output", self.config.outputs))
        return tuple(
            (side, tensor, self.ports[side][tensor.name])
            for side, tensors_of_side in given
            for tensor in tensors_of_side
            if tensor.name in self.ports[side]
        )

    def at(self, side: str, name: str, key: str = "") -> Position:
        """A tensor in config.pbtxt; where its section is, or would be, when it is not written."""
        if name not in self._written[side]:
            return self.model.at(side)
        number, _ = self._written[side][name]
        return self.model.at(side, number, *filter(None, (key,)))

    def has_dims(self, side: str, tensor: Tensor) -> bool:
        """Whether Triton compares the tensor's shape as it is, and it says what was meant."""
        _, entry = self._written[side].get(tensor.name, (0, None))
        unsaid = entry is not None and not entry.dims
        scattered = side == "output" and tensor.name in self.config.batch_outputs
        sound = all(size >= 1 or size == -1 for size in tensor.shape)
        impossible = tensor.optional and self.batching  # a mistake of its own
        return sound and not (unsaid or tensor.ragged or scattered or impossible)

    @cached_property
    def named(self) -> frozenset[tuple[str, str]]:
        """Side and name of what config and file both have."""
        return frozenset((side, tensor.name) for side, tensor, _ in self.pairs)

    @cached_property
    def _written(self) -> Mapping[str, Mapping[str, tuple[int, Any]]]:
        """Number and entry of each tensor in config.pbtxt; of two of one name the first."""
        message = self.model.message
        return {
            side: {row.name: (number, row) for number, row in reversed([*enumerate(rows)])}
            for side, rows in (("input", message.input), ("output", message.output))
        }

    def shown_batch(self) -> str:
        """Where the batch size comes from, for messages."""
        size = self.config.max_batch
        if self.done.batch_was_set:
            return f"Triton completes max_batch_size to {size}"
        return f"max_batch_size is {size}"


@remembered
def fits_of(model: Model) -> tuple[Fit, ...]:
    """One for each version that Triton loads and whose file could be read."""
    return tuple(
        Fit(model, served, served.file, complete_config(onnx_config(model), served.file))
        for served in served_files(model)
        if served.file is not None
    )


def each_version(find: Callable[[Fit], Iterator[Mistake]]) -> Find:
    """A rule about one file as a rule about a model: the same mistake in all versions is one."""

    def find_in_model(model: Model, _repository: Repository) -> Iterator[Mistake]:
        fits = fits_of(model) if is_onnx(model) else ()
        found: dict[Mistake, list[int]] = {}
        for fit in fits:
            for mistake in find(fit):
                found.setdefault(mistake, []).append(fit.served.version)
        for mistake, versions in found.items():
            if len(versions) == len(fits):
                yield mistake
            else:
                numbers = ", ".join(map(str, versions))
                yield replace(mistake, message=f"{mistake.message} (version {numbers})")

    return find_in_model


# ---------------------------------------------------------------- shapes


@dataclass(frozen=True, slots=True)
class Misfit:
    """A tensor whose shape does not fit, and the code of the rule that this breaks; "" and no
    mistake where another one tells it.
    """

    code: str
    tensor: str
    mistake: Mistake | None = None


@remembered
def misfits(fit: Fit) -> tuple[Misfit, ...]:
    if fit.done.refused is not None:
        return tuple(_refusal(fit))
    if not fit.done.max_batch_known:
        return ()
    pairs = [(s, t, p) for s, t, p in fit.pairs if p.shape is not None and fit.has_dims(s, t)]
    found = [*_stated_otherwise(fit, pairs), *_unbatched(fit, pairs)]
    blamed = {misfit.tensor for misfit in found}
    for side, tensor, port in pairs:
        if tensor.name not in blamed:
            found += _other_shape(fit, side, tensor, port)
    return tuple(found)


def misfits_of(code: str) -> Callable[[Fit], Iterator[Mistake]]:
    """Finds the misfits that break the rule `code`."""

    def find(fit: Fit) -> Iterator[Mistake]:
        yield from (m.mistake for m in misfits(fit) if m.mistake is not None and m.code == code)

    return find


def other_rows(fit: Fit) -> Iterator[tuple[Port, int, int]]:
    """Outputs that have another number of rows than the batch, with the two numbers."""
    flat = fit.config.batch_inputs or any(tensor.ragged for tensor in fit.config.inputs)
    if fit.config.max_batch < 2 or flat or fit.done.refused is not None:
        return
    blamed = {misfit.tensor for misfit in misfits(fit)}
    for side, tensor, port in fit.pairs:
        if side == "input" or port.name in blamed or port.name in fit.config.batch_outputs:
            continue
        for batch, rows in fit.file.batch_rows.items():
            if batch <= fit.config.max_batch and rows.get(tensor.name, batch) != batch:
                yield port, batch, rows[tensor.name]
                break


Pairs = Sequence[tuple[str, Tensor, Port]]


def _refusal(fit: Fit) -> Iterator[Misfit]:
    """Why Triton cannot complete a config that wants batches."""
    ports = [("input", port) for port in fit.file.inputs]
    ports += [("output", port) for port in fit.file.outputs]
    blocking = [(side, port) for side, port in ports if port.shape is not None and _fixed(port)]
    if blocking and fit.batching:
        told = "; ".join(
            f"{side} `{port.name}` is {shown(port.shape) if port.shape else 'a scalar'}"
            for side, port in blocking
        )
        yield Misfit(
            "M006" if all(_stated_open(port) for _, port in blocking) else "M001",
            "",
            Mistake(
                fit.model.at("max_batch_size"),
                f"{fit.shown_batch()}, and {fit.name} has no open first axis for it: {told}",
                "write `max_batch_size: 0`, or export with an open first axis for all tensors",
            ),
        )


def _fixed(port: Port) -> bool:
    """Whether there is no open first axis."""
    return port.shape == () or isinstance((port.shape or (None,))[0], int)


def _stated_open(port: Port) -> bool:
    """Whether the file says that the first axis is open."""
    return bool(port.declared) and not isinstance((port.declared or (0,))[0], int)


def _stated_otherwise(fit: Fit, pairs: Pairs) -> Iterator[Misfit]:
    """Tensors whose first axis the file calls open, and the graph fixes."""
    for side, tensor, port in pairs:
        if fit.batching and port.shape and _fixed(port) and _stated_open(port):
            yield Misfit(
                "M006",
                tensor.name,
                Mistake(
                    fit.at(side, tensor.name, "dims"),
                    f"{side} `{port.name}` is {shown(port.declared)} by what {fit.name} states, "
                    f"and the graph yields {shown(port.shape)}: the batch is fixed in it",
                    "export again with an example of two rows, or write `max_batch_size: 0`",
                ),
            )


def _unbatched(fit: Fit, pairs: Pairs) -> Iterator[Misfit]:
    """Tensors with a first axis of fixed size: one cause, so one finding, at the first of them."""
    fixed = [
        (side, port)
        for side, _, port in pairs
        if fit.batching and port.shape and _fixed(port) and not _stated_open(port)
    ]
    for side, port in fixed[:1]:
        others = ", ".join(f"{s} `{p.name}` {shown(p.shape)}" for s, p in fixed[1:])
        mistake = Mistake(
            fit.at(side, port.name, "dims"),
            f"{side} `{port.name}` is {shown(port.shape)} in {fit.name}: the first axis must be an "
            f"open batch, as {fit.shown_batch()}" + (f"; the same for {others}" if others else ""),
            moved_axis(fit, port)
            or "write `max_batch_size: 0` and all axes in dims, or export with an open first axis",
        )
        yield Misfit("M001", port.name, mistake)
    for _, port in fixed[1:]:
        yield Misfit("", port.name)


def moved_axis(fit: Fit, port: Port) -> str:
    """A hint where the batch is, if the inputs name it and another axis has that name."""
    names = {other.shape[0] for other in fit.file.inputs if other.shape}
    batch = names.pop() if len(names) == 1 else None
    if isinstance(batch, str) and port.shape and batch in port.shape[1:]:
        place = port.shape.index(batch, 1)
        return f"its batch `{batch}` is axis {place}: export with the batch as the first axis"
    return ""


def _other_shape(fit: Fit, side: str, tensor: Tensor, port: Port) -> Iterator[Misfit]:
    theirs = tensors((port,))[0].shape
    exact = side == "output"
    try:
        check_shape(fit.config, tensor, theirs, exact=exact)
        return
    except LoadError:
        pass
    at = fit.at(side, tensor.name, "dims")
    ours = (-1, *tensor.shape) if fit.batching else tensor.shape
    is_theirs = shown(port.shape) if port.shape else "a scalar"
    text = f"{side} `{tensor.name}` is {is_theirs} in {fit.name}, and {shape_text(ours)} "
    text += "with the batch in the config" if fit.batching else "in the config"
    if not theirs:
        yield Misfit("M005", tensor.name, Mistake(at, text, "write `dims: [ 1 ]`"))
    elif fit.batching and _repeats_batch(tensor.shape, theirs):
        text += ": dims must not include the batch"
        if fit.done.batch_was_set:
            text += f" ({fit.shown_batch()})"
        hint = f"write `{dims_text(theirs[1:])}`"
        yield Misfit("M001", tensor.name, Mistake(at, text, hint))
    else:
        differ = {a for a, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]}
        doubtful = exact and len(ours) == len(theirs) and differ <= port.unsure
        if doubtful:
            text += "; ONNX Runtime may know it better, which `mmctl check --run` asks"
        hint = f"write `{dims_text(theirs[1:] if fit.batching else theirs)}`"
        if not fit.batching and len(ours) + 1 == len(theirs) and theirs[0] == -1:
            hint += ", or a max_batch_size above 0: without it dims have all axes"
        severity = Severity.WARNING if doubtful else None
        yield Misfit("M002", tensor.name, Mistake(at, text, hint, severity))


def _repeats_batch(dims: Sequence[int], model: Sequence[int]) -> bool:
    """Whether dims have the batch axis too, of which the model has one."""
    return len(dims) == len(model) and agree(dims[1:], model[1:])


# ---------------------------------------------------------------- words


def dims_text(shape: Sequence[int]) -> str:
    if not shape:
        return "dims: [ 1 ] reshape { shape: [ ] }"
    return f"dims: [ {', '.join(map(str, shape))} ]"


def shown(shape: Shape | None) -> str:
    """A shape for people: sizes, and the names of open axes."""
    if shape is None:
        return "of unknown rank"
    return f"[{','.join('-1' if size is None else str(size) for size in shape)}]"


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
