"""A loaded model as its own server describes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mmctl.tensors import DType, Signature, TensorSpec, TensorType, dtype_from_triton

Sequences = Literal["", "number", "text"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an ensemble: the model, and its tensors by those of the ensemble."""

    model: str
    inputs: Mapping[str, str]
    """Input of the model -> tensor of the ensemble."""
    outputs: Mapping[str, str]
    """Output of the model -> tensor of the ensemble."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm-up request: the shapes of its inputs without the batch axis, and the files or zeros
    in them; the other inputs are random.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, str] = field(default_factory=dict)
    zeros: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Model:
    """One version of a model that is ready. `version` is empty where there is only one.

    `sequences` says how it numbers sequences, empty where it has none. `loose` means that rows of
    an answer need not be those of the request. `sizes` are lengths that free axes should be tried
    with.
    """

    name: str
    signature: Signature
    version: str = ""
    backend: str = ""
    steps: tuple[Step, ...] = ()
    decoupled: bool = False
    sequences: Sequences = ""
    loose: bool = False
    warm_ups: tuple[WarmUp, ...] = ()
    sizes: tuple[int, ...] = ()
    inner: frozenset[str] = frozenset()
    """All models that an ensemble calls, through other ensembles too."""

    @property
    def max_batch(self) -> int:
        return self.signature.max_batch

    @property
    def free(self) -> bool:
        """Whether an input has an axis of any length."""
        return any(-1 in spec.type.dims for spec in self.signature.inputs)

    @property
    def unsendable(self) -> str:
        """A tensor of a type that numpy does not have, empty without one."""
        tensors = (*self.signature.inputs, *self.signature.outputs)
        return next((spec.name for spec in tensors if spec.type.dtype is DType.BF16), "")

    def writer(self, tensor: str) -> tuple[Step, str] | None:
        """The step that writes a tensor of the ensemble, and its own name for it."""
        for step in self.steps:
            for name, written in step.outputs.items():
                if written == tensor:
                    return step, name
        return None

    def step(self, model: str) -> Step | None:
        return next((step for step in self.steps if step.model == model), None)


def model_of(config: Mapping[str, Any], version: str = "") -> Model:
    """Of a config as Triton gives it over HTTP, completed."""
    return Model(
        name=config["name"],
        version=version,
        backend="ensemble" if config.get("platform") == "ensemble" else config.get("backend", ""),
        signature=Signature(
            inputs=tuple(map(_spec, config.get("input", ()))),
            outputs=tuple(map(_spec, config.get("output", ()))),
            max_batch=int(config.get("max_batch_size", 0)),
        ),
        steps=tuple(map(_step, config.get("ensemble_scheduling", {}).get("step", ()))),
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled")),
        sequences=_sequences(config.get("sequence_batching")),
        loose=bool(config.get("batch_output")),
    )


def has_types(config: Mapping[str, Any]) -> bool:
    """Whether every tensor has a type: Triton loads a model whose type is a number without one."""
    tensors = (*config.get("input", ()), *config.get("output", ()))
    return all(isinstance(tensor["data_type"], str) for tensor in tensors)


def with_steps(model: Model, known: Mapping[str, Model]) -> Model:
    """An ensemble with what its steps, and those of its steps, ask of it."""
    inner = list(_inner(model, known, set()))
    fixed = {dim for m in (model, *inner) for dim in _fixed(m, known)}
    return replace(
        model,
        sequences=next((m.sequences for m in inner if m.sequences), model.sequences),
        loose=model.loose or any(m.loose for m in inner),
        sizes=tuple(sorted(fixed)),
        inner=frozenset(m.name for m in inner),
    )


def _fixed(model: Model, known: Mapping[str, Model]) -> Iterable[int]:
    """The lengths of axes where a tensor of any length goes into a step that takes one length."""
    written = {spec.name: spec.type.triton_dims for spec in model.signature.inputs}
    for step in model.steps:
        for name, tensor in step.outputs.items():
            if spec := known[step.model].signature.output(name) if step.model in known else None:
                written[tensor] = spec.type.triton_dims
    for step in model.steps:
        for name, tensor in step.inputs.items():
            if spec := known[step.model].signature.input(name) if step.model in known else None:
                # From the last axis: a step without batches has the batch among its own axes.
                axes = written.get(tensor, ())[::-1], spec.type.triton_dims[::-1]
                yield from (taken for given, taken in zip(*axes, strict=False) if given < 0 < taken)


def _inner(model: Model, known: Mapping[str, Model], seen: set[str]) -> Iterable[Model]:
    for step in model.steps:
        if step.model in known and step.model not in seen:
            seen.add(step.model)
            yield known[step.model]
            yield from _inner(known[step.model], known, seen)


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    dims = tuple(int(dim) for dim in entry["dims"])
    kind = TensorType(dtype_from_triton(entry["data_type"]), dims)
    return TensorSpec(entry["name"], kind, bool(entry.get("optional")))


def _step(entry: Mapping[str, Any]) -> Step:
    return Step(
        entry["model_name"], dict(entry.get("input_map", {})), dict(entry.get("output_map", {}))
    )


def _sequences(entry: Mapping[str, Any] | None) -> Sequences:
    if entry is None:
        return ""
    for given in entry.get("control_input", ()):
        for control in given.get("control", ()):
            if control.get("kind") == "CONTROL_SEQUENCE_CORRID":
                return "text" if control.get("data_type") == "TYPE_STRING" else "number"
    return "number"


def warm_ups_of(message: Any) -> tuple[WarmUp, ...]:
    """Of Triton's ModelConfig: a model may have been loaded without its warm-up."""
    return tuple(
        WarmUp(
            name=entry.name,
            shapes={name: tuple(tensor.dims) for name, tensor in entry.inputs.items()},
            files={
                name: tensor.input_data_file
                for name, tensor in entry.inputs.items()
                if tensor.input_data_file
            },
            zeros=frozenset(name for name, tensor in entry.inputs.items() if tensor.zero_data),
        )
        for entry in message.model_warmup
    )
