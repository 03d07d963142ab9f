"""What an ensemble and the models that it calls say of each tensor between them, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mmctl.diagnostics import Position
from mmctl.lint.ensembles.graph import Step, step_at, wiring_of
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model, Repository, names_of
from mmctl.lint.signatures import Io, IoTensor, agree, io_of

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mention:
    """A tensor as one end of it is declared: by the model of a step, or, where `step` is None, by
    the ensemble. `name` is what it is called there; `gives` tells a writer from a reader.

    `dims` leave out the batch axis and are None where only a server can tell; `max_batch` 0: the
    end has no batch axis.
    """

    step: Step | None
    name: str
    gives: bool
    data_type: str
    dims: Dims | None
    max_batch: int

    @property
    def batches(self) -> bool:
        return self.max_batch > 0

    @property
    def full_dims(self) -> Dims:
        return (-1,) * self.batches + (self.dims or ())

    def __str__(self) -> str:
        if self.step is None:
            return f"the ensemble's {'input' if self.gives else 'output'}"
        return f"`{self.name}` of {self.step}"


def called_model(step: Step, repository: Repository) -> Model | None:
    """The model of a step, None where it is not there or cannot be read."""
    model = repository.models.get(step.model)
    return model if model and model.readable and not model.findings else None


def calls_known(model: Model, repository: Repository) -> Iterator[tuple[Step, Model, Io]]:
    """The steps whose models are here, with what is known of them."""
    for step in wiring_of(model).steps:
        if called := called_model(step, repository):
            yield step, called, io_of(called)


def mentions_of(model: Model, repository: Repository) -> Mapping[str, list[Mention]]:
    """By tensor, in the order in which Triton compares: the first one is what it holds the others
    against.
    """
    own = io_of(model)
    found: dict[str, list[Mention]] = {}
    for tensors, gives in ((own.inputs, True), (own.outputs, False)):
        for tensor in (tensors or {}).values():
            dims = tensor.dims if tensor.reshape is None else tensor.reshape
            mention = Mention(None, tensor.name, gives, tensor.data_type, dims, own.max_batch or 0)
            found.setdefault(tensor.name, []).append(mention)
    for step, _, io in calls_known(model, repository):
        for known, names, gives in (
            (io.inputs, step.inputs, False),
            (io.outputs, step.outputs, True),
        ):
            for tensor in (known or {}).values():
                if tensor.name in names:
                    mention = _mention(step, tensor, io, gives)
                    found.setdefault(names[tensor.name], []).append(mention)
    return found


def _mention(step: Step, tensor: IoTensor, io: Io, gives: bool) -> Mention:
    dims = None if io.max_batch is None else tensor.dims
    return Mention(step, tensor.name, gives, tensor.data_type, dims, io.max_batch or 0)


def mention_at(model: Model, tensor: str, mention: Mention) -> Position:
    """Where the ensemble's config.pbtxt has this end of the tensor."""
    if mention.step is not None:
        map_name = "output_map" if mention.gives else "input_map"
        return step_at(model, mention.step, map_name, mention.name)
    section = "input" if mention.gives else "output"
    return model.at(section, names_of(getattr(model.message, section)).index(tensor))


def fit(one: Mention, other: Mention) -> bool:
    """Whether Triton takes two ends for one tensor; True where only a server can tell."""
    if one.dims is None or other.dims is None:
        return True
    return agree(one.dims, other.dims) or agree(one.full_dims, other.full_dims)


@remembered
def decoupled_models(repository: Repository) -> frozenset[str]:
    """The models that may answer a request more or less than once. Triton overwrites what an
    ensemble says of itself: it is decoupled when one of its steps is.
    """
    callers: dict[str, list[str]] = {}
    found = []
    for name, model in repository.models.items():
        if not model.readable:
            continue
        if model.is_ensemble:
            for step in wiring_of(model).steps:
                callers.setdefault(step.model, []).append(name)
        elif model.message.model_transaction_policy.decoupled:
            found.append(name)
    decoupled = set(found)
    while found:
        for caller in callers.get(found.pop(), ()):
            if caller not in decoupled:
                decoupled.add(caller)
                found.append(caller)
    return frozenset(decoupled)
