"""The tensors of an ensemble as both their ends declare them: E006, E007 and E011.

Triton checks these when the called models are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mmctl.diagnostics import Rule
from mmctl.lint.ensembles.calls import (
    Mention,
    decoupled_models,
    fit,
    mention_at,
    mentions_of,
)
from mmctl.lint.ensembles.graph import Step, step_at, wiring_of
from mmctl.lint.repository import Model, Repository, names_of
from mmctl.lint.rules import Check, Mistake

# ---------------------------------------------------------------- E006


def _find_types(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    for tensor, mentions in mentions_of(model, repository).items():
        typed = [mention for mention in mentions if mention.data_type]
        first = _held_against(typed)
        for other in typed:
            if first and other.data_type != first.data_type:
                yield Mistake(
                    mention_at(model, tensor, other),
                    f"tensor `{tensor}` is {first.data_type} as {first} and {other.data_type} as "
                    f"{other}",
                    "an ensemble casts nothing: give both one type, or cast in a step between them",
                )


TYPES_DIFFER = Check(
    Rule(
        "E006",
        "tensor with two types",
        "A tensor has one data type for the step that writes it and for all that read it. Triton "
        "does not cast.",
        wrong="a: output y TYPE_FP32, b: input x TYPE_FP16, joined",
        right="a: output y TYPE_FP16, b: input x TYPE_FP16, joined",
    ),
    _find_types,
)


def _held_against(mentions: list[Mention]) -> Mention | None:
    """The writer of a tensor; where it is not known, the end that Triton meets first."""
    return next((m for m in mentions if m.gives), mentions[0] if mentions else None)


# ---------------------------------------------------------------- E007


def _find_shapes(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    for tensor, mentions in mentions_of(model, repository).items():
        shaped = [mention for mention in mentions if mention.dims is not None]
        if not shaped or all(fit(shaped[0], other) for other in shaped):
            continue
        first = _held_against(shaped) or shaped[0]
        if all(fit(first, other) for other in shaped):
            first = shaped[0]
        for other in shaped:
            if not fit(first, other):
                yield Mistake(
                    mention_at(model, tensor, other),
                    f"tensor `{tensor}` is {shapes(first, other)}",
                    "make the two dims one, or reshape in a step between them",
                )


def shapes(one: Mention, other: Mention) -> str:
    """Two ends with their shapes; the batch axis is told where only one has it."""
    told = one.batches != other.batches
    return f"{_shape(one, told)} as {one} and {_shape(other, told)} as {other}"


def _shape(mention: Mention, told: bool) -> str:
    axes = ["batch"] * (told and mention.batches) + [str(dim) for dim in mention.dims or ()]
    return f"[{','.join(axes)}]"


SHAPES_DIFFER = Check(
    Rule(
        "E007",
        "tensor with two shapes",
        "Triton compares the `dims` of both ends, with -1 for any size; if they differ, it "
        "compares them with the batch axis in front where max_batch_size is above 0. A `reshape` "
        "counts only in the inputs and outputs of the ensemble itself.",
        wrong="a: output y dims [ 10 ], b: input x dims [ 1000 ], joined",
        right="a: output y dims [ 10 ], b: input x dims [ 10 ], joined",
    ),
    _find_shapes,
)

# ---------------------------------------------------------------- E011


def _find_mixed_streams(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    decoupled = decoupled_models(repository)
    stream = dict.fromkeys(wiring.inputs, -1)
    hint = "pass the value through the streaming model, or call the models from a BLS model"
    for step in wiring.order:
        tensors = [name for name in step.inputs.values() if name in stream]
        if len({stream[name] for name in tensors}) > 1:
            at = step_at(model, step)
            yield Mistake(at, f"{step} joins {_streams(tensors, stream, wiring.steps)}", hint)
        own = step.number if step.model in decoupled else stream[tensors[0]] if tensors else -1
        for tensor in step.outputs.values():
            stream.setdefault(tensor, own)
    outputs = [name for name in wiring.outputs if name in stream]
    if len({stream[name] for name in outputs}) > 1:
        odd = next(name for name in outputs if stream[name] != stream[outputs[0]])
        at = model.at("output", names_of(model.message.output).index(odd))
        yield Mistake(
            at, f"the ensemble's outputs join {_streams(outputs, stream, wiring.steps)}", hint
        )


def _streams(tensors: list[str], stream: Mapping[str, int], steps: tuple[Step, ...]) -> str:
    """One tensor of each stream, with the step that it comes from."""
    shown: dict[int, str] = {}
    for tensor in tensors:
        number = stream[tensor]
        origin = f"the stream of {steps[number]}" if number >= 0 else "one answer a request"
        shown.setdefault(number, f"`{tensor}` ({origin})")
    return " with ".join(shown.values())


MIXED_STREAMS = Check(
    Rule(
        "E011",
        "tensors of different streams joined",
        "A decoupled model answers a request any number of times. What comes from it and what does "
        "not, or what comes from two of them, differ in number, so no step may take both, and the "
        "outputs of an ensemble must all come from one.",
        wrong='input_map { value: "tokens" }  # from a decoupled model\n'
        'input_map { value: "text" }  # not from it',
        right="the decoupled model gives `text` again with each answer",
    ),
    _find_mixed_streams,
)

TENSOR_CHECKS: tuple[Check, ...] = (TYPES_DIFFER, SHAPES_DIFFER, MIXED_STREAMS)
