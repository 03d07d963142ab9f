"""One config for several versions of a model, as Triton wants it to serve them together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmctl.triton.pbtxt import parse_message, render_message

SETTINGS = (
    "version_policy",
    "instance_group",
    "dynamic_batching",
    "max_batch_size",
    "optimization",
    "model_warmup",
    "response_cache",
)
"""How a model is served, not what it is: any of its versions can be served so."""


def share_config(newest: str, others: Sequence[str], *, runner: bool, where: str) -> str:
    """The config with which the version of `newest` and those of `others` can all be served.

    Settings are those of `newest`. `runner`: the model is run by a runner of mmctl, which reads
    its tensors from its own version folder; its config may name tensors that a version does not
    have, inputs as optional. Raises ValueError with the reason when no config serves all.
    """
    shared = parse_message(newest, where)
    for text in others:
        other = parse_message(text, where)
        if bool(shared.max_batch_size) != bool(other.max_batch_size):
            raise ValueError("one of them has a batch axis and the other has none")
        if runner:
            _add_tensors(shared, other)
        shared.max_batch_size = max(shared.max_batch_size, other.max_batch_size)
        _refuse_others(shared, other, ("input", "output") if runner else ())
    return render_message(shared)


def _refuse_others(shared: Any, other: Any, shareable: Sequence[str]) -> None:
    """What is left after the fields that may differ must be equal."""
    left, right = (_without(message, (*SETTINGS, *shareable)) for message in (shared, other))
    if left == right:
        return
    names = [field.name for field in left.DESCRIPTOR.fields]
    differing = [name for name in names if getattr(left, name) != getattr(right, name)]
    raise ValueError(f"their configs differ in {', '.join(f'`{name}`' for name in differing)}")


def _without(message: Any, fields: Sequence[str]) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    for name in (*fields, "name"):
        copy.ClearField(name)
    return copy


def _add_tensors(shared: Any, other: Any) -> None:
    """Outputs of both; inputs that not both have become optional. Raises ValueError."""
    _refuse_other_types("input", shared.input, other.input)
    _refuse_other_types("output", shared.output, other.output)
    theirs = {tensor.name: tensor for tensor in other.input}
    ours = {tensor.name: tensor for tensor in shared.input}
    for name, tensor in ours.items():
        tensor.optional = tensor.optional or name not in theirs or theirs[name].optional
    for name, tensor in theirs.items():
        if name not in ours:
            shared.input.add().CopyFrom(tensor)
            shared.input[-1].optional = True
    known = {tensor.name for tensor in shared.output}
    shared.output.extend(tensor for tensor in other.output if tensor.name not in known)


def _refuse_other_types(kind: str, ours: Any, theirs: Any) -> None:
    known: Mapping[str, Any] = {tensor.name: tensor for tensor in theirs}
    for tensor in ours:
        if (other := known.get(tensor.name)) is None:
            continue
        if (tensor.data_type, list(tensor.dims)) != (other.data_type, list(other.dims)):
            raise ValueError(f"{kind} `{tensor.name}` has another type in each")
