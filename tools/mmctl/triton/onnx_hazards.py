"""What loads on Triton's C++ ONNX Runtime backend, and then crashes or answers wrongly there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmctl.triton.onnx_backend import Config, Tensor, fits_int, leading_number

KEYS = {
    "scalar-output-crash": "any request kills the server",
    "scalar-output": "a batch of two or more fails, or loses rows",
    "string-output": "answers hold foreign memory, or the server dies",
    "scalar-input": "one value counts for all rows",
    "ragged-output": "requests get rows of others",
    "thread-count": "the server dies while it loads the model",
    "arena-list": "every request fails",
}
"""Kinds of hazards, and what happens."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """`key` is one of KEYS; `subject` is a tensor's name, or a parameter's."""

    key: str
    subject: str
    text: str


def hazards(
    config: Config, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Hazard, ...]:
    """Of a config that loads, completed where it was not complete; the tensors are the model's.

    Some need the names of first axes (`Tensor.axis`); without them they stay silent.
    """
    found = [*parameter_hazards(config.parameters)]
    if config.max_batch > 0:
        found += input_hazards(config, {tensor.name: tensor for tensor in inputs})
        for given in config.outputs:
            for tensor in outputs:
                if tensor.name == given.name and given.name not in config.batch_outputs:
                    found += output_hazards(config, given, tensor, inputs)
    return tuple(dict.fromkeys(found))


def parameter_hazards(parameters: Mapping[str, str]) -> Iterator[Hazard]:
    for name in ("execution_mode", "intra_op_thread_count", "inter_op_thread_count"):
        number = leading_number(parameters.get(name, ""))
        if number is not None and not fits_int(number):
            text = f"`{name}` is {number}, which no 32-bit integer holds: the server aborts"
            yield Hazard("thread-count", name, text)
    name = "memory.enable_memory_arena_shrinkage"
    for device in filter(None, parameters.get(name, "").split(";")):
        if not re.match(r"(cpu|gpu)(:[0-9]+|$)", device):
            text = f"`{name}` names `{device}`, which is neither `cpu:0` nor a `gpu:0`"
            yield Hazard("arena-list", name, f"{text}: every request fails")


def input_hazards(config: Config, inputs: Mapping[str, Tensor]) -> Iterator[Hazard]:
    for given in config.inputs:
        if given.name in inputs and not inputs[given.name].shape:
            text = (
                f"input `{given.name}` is a scalar in the model: "
                "of a whole batch only the first value counts"
            )
            yield Hazard("scalar-input", given.name, text)


def output_hazards(
    config: Config, given: Tensor, found: Tensor, inputs: Sequence[Tensor]
) -> Iterator[Hazard]:
    """`given` is the output in the config, `found` in the model."""
    where = f"output `{found.name}`"
    text = found.dtype == "TYPE_STRING"
    if not found.shape and not given.shape:
        yield Hazard(
            "scalar-output-crash",
            found.name,
            f"{where} is a scalar in the model and has an empty `reshape` here: "
            "any request kills the server, also one that asks for other outputs",
        )
    elif not found.shape and not text:
        yield Hazard(
            "scalar-output",
            found.name,
            f"{where} has no axes, or unknown ones, in the model, so none for the batch: "
            "a batch of two or more fails, or loses rows",
        )
    elif flat(config, found, inputs):
        yield Hazard(
            "ragged-output",
            found.name,
            f"{where} is as long as the ragged input and no `batch_output`: "
            "it is split by batch, so requests get rows of others",
        )
    elif text and (not found.shape or other_axis(found, inputs)):
        yield Hazard(
            "string-output",
            found.name,
            f"{where} may have fewer rows than the batch: for strings nothing checks that, "
            "the answer holds foreign memory or the server dies",
        )


def flat(config: Config, output: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether an output counts elements of ragged inputs, where others count rows.

    Without other inputs and batch inputs the model has nothing to tell it how many rows there are.
    """
    ragged = {tensor.name for tensor in config.inputs if tensor.ragged}
    axes = {tensor.axis for tensor in inputs if tensor.name in ragged} - {""}
    blind = config.batch_inputs == 0 and len(ragged) == len(config.inputs)
    return bool(ragged) and (output.axis in axes or blind)


def other_axis(output: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether the model names the first axis of an output unlike that of any input.

    Names that shape inference made up (`unk__0`) tell nothing.
    """
    names = {tensor.axis for tensor in inputs}
    known = bool(output.axis) and not output.axis.startswith("unk__") and "" not in names
    return known and output.axis not in names
