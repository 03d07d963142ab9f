"""Steps, tensors and batches of an ensemble that make no graph of a pipeline. Pure.

Triton refuses most of these as well; told here, they stand where they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mmctl.compiler.adopt.original import LEAVE, STEP, Callee, Difference, Original, difference
from mmctl.diagnostics import nearest
from mmctl.tensors import Signature
from mmctl.triton.config import EnsembleStep


def find_wrong_edges(original: Original, callees: Mapping[str, Callee]) -> Iterator[Difference]:
    """`callees` has every model that the steps name."""
    yield from _tensors(original)
    yield from _models(original, callees)
    for index, step in enumerate(original.steps):
        signature = callees[step.model].signature
        if signature.inputs and signature.outputs:
            yield from _mappings(original, index, step, signature)
    yield from _batches(original, callees)


def _tensors(original: Original) -> Iterator[Difference]:
    """Those without exactly one writer, and without a reader."""
    inputs = {tensor.name for tensor in original.config.inputs}
    written = {tensor for step in original.steps for tensor in step.outputs.values()}
    read = {tensor for step in original.steps for tensor in step.inputs.values()}
    yield from _written_twice(original, inputs)
    for index, step in enumerate(original.steps):
        who = f"step {index} (`{step.model}`)"
        for key, tensor in sorted(step.inputs.items()):
            if tensor not in inputs | written:
                message = f"{who} reads `{tensor}`, which nothing writes"
                hint = nearest(tensor, inputs | written)
                yield difference(original, (*STEP, index, "input_map", key), message, hint)
        for key, tensor in sorted(step.outputs.items()):
            if tensor not in read | {output.name for output in original.config.outputs}:
                message = f"`{tensor}` is written by {who} and never read"
                hint = f"remove `{key}` from its output_map: Triton refuses the ensemble with it"
                yield difference(original, (*STEP, index, "output_map", key), message, hint)
    for index, spec in enumerate(original.config.inputs):
        if spec.name not in read:
            message = f"no step reads the input `{spec.name}`"
            hint = "remove it: Triton refuses the ensemble with it"
            yield difference(original, ("input", index, "name"), message, hint)
    for index, spec in enumerate(original.config.outputs):
        if spec.name not in inputs | written:
            message = f"no step writes the output `{spec.name}`"
            yield difference(original, ("output", index, "name"), message)


def _written_twice(original: Original, inputs: set[str]) -> Iterator[Difference]:
    writers: dict[str, int] = {}
    for index, step in enumerate(original.steps):
        for key, tensor in sorted(step.outputs.items()):
            place = (*STEP, index, "output_map", key)
            if tensor in inputs:
                message = f"step {index} (`{step.model}`) writes `{tensor}`, which is an input"
                yield difference(original, place, message, "write another tensor")
            elif tensor in writers:
                message = f"`{tensor}` is written twice: by step {writers[tensor]} and step {index}"
                yield difference(original, place, message, "write two tensors")
            writers.setdefault(tensor, index)


def _models(original: Original, callees: Mapping[str, Callee]) -> Iterator[Difference]:
    if not original.steps:
        yield difference(original, STEP, "the ensemble has no steps", "Triton refuses it as well")
    seen: set[str] = set()
    for index, step in enumerate(original.steps):
        place = (*STEP, index, "model_name")
        if step.model in seen:
            continue
        seen.add(step.model)
        if (problem := _problem(step.model, callees)) is not None:
            yield difference(original, place, *problem)


def _problem(model: str, callees: Mapping[str, Callee]) -> tuple[str, str | None] | None:
    callee = callees[model]
    if not callee.exists:
        known = [name for name, other in callees.items() if other.exists]
        return f"there is no model `{model}` in the repository", nearest(model, known)
    if not (callee.signature.inputs and callee.signature.outputs):
        return (
            f"the signature of `{model}` is not known: its config names no inputs or no outputs, "
            "Triton completes it when the model loads",
            f"write `input`, `output` and `max_batch_size` into {callee.shown}; a running Triton "
            f"tells them at /v2/models/{model}/config",
        )
    if callee.decoupled:
        return (
            f"`{model}` is decoupled: it may answer a request many times, a pipeline answers once",
            "leave the ensemble as it is: in model_repository/ it is served",
        )
    return None


def _mappings(
    original: Original, index: int, step: EnsembleStep, signature: Signature
) -> Iterator[Difference]:
    """Tensors that the model does not have, and inputs that nothing feeds."""
    place = (*STEP, index)
    taken = [spec.name for spec in signature.inputs]
    given = [spec.name for spec in signature.outputs]
    for field, mapped, known in (
        ("input_map", step.inputs, taken),
        ("output_map", step.outputs, given),
    ):
        for key in sorted(set(mapped) - set(known)):
            message = f"`{step.model}` has no {field.removesuffix('_map')} `{key}`"
            yield difference(original, (*place, field, key), message, nearest(key, known))
    missing = [s.name for s in signature.inputs if not s.optional and s.name not in step.inputs]
    for name in missing:
        message = f"step {index} (`{step.model}`) maps no tensor to the input `{name}`"
        yield difference(original, (*place, "input_map"), message, "add it to the input_map")


def _batches(original: Original, callees: Mapping[str, Callee]) -> Iterator[Difference]:
    """One batch axis for all, or none: what else Triton allows has no pipeline."""
    most = original.config.max_batch_size
    known = {s.model: callees[s.model] for s in original.steps if callees[s.model].exists}
    sizes = {n: c.signature.max_batch for n, c in known.items() if c.signature.outputs}
    batched = [name for name, size in sizes.items() if size]
    if not most and batched:
        message = (
            f"`max_batch_size` is 0, but `{batched[0]}` takes batches of {sizes[batched[0]]}: a "
            "pipeline has the batch axis of the models that it calls"
        )
        hint = f"give the ensemble a `max_batch_size` and `dims` without the batch, or {LEAVE}"
        yield difference(original, ("max_batch_size",), message, hint)
    for index, step in enumerate(original.steps):
        if most and sizes.get(step.model) == 0:
            message = (
                f"step {index} (`{step.model}`) takes no batch: this ensemble hands it the whole "
                "batch as one tensor, a pipeline would call it row by row"
            )
            yield difference(original, (*STEP, index, "model_name"), message, LEAVE)
