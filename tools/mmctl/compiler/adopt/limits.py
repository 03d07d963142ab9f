"""Names and fields of an ensemble's config that pipeline.yaml cannot say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mmctl.compiler.adopt.original import LEAVE, STEP, Difference, Original, difference
from mmctl.compiler.adopt.values import BLOCK, Location, field_name, values_of
from mmctl.pipeline.names import IDENTIFIER
from mmctl.workspace import check_name


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a field has no key in pipeline.yaml, and what to do about it."""

    why: str
    hint: str


_REFUSED = Reason("Triton refuses it in an ensemble", "remove it; `mmctl check` says what else")
_UNKNOWN = Reason("pipeline.yaml has no key for it", f"remove it, or {LEAVE}")

REASONS: Mapping[str, Reason] = {
    "backend": _REFUSED,
    "instance_group": _REFUSED,
    "optimization": _REFUSED,
    "model_warmup": _REFUSED,
    "version_policy": Reason(
        "mmctl numbers the versions of a pipeline and serves the one that was built", "remove it"
    ),
    "response_cache": Reason(
        "mmctl gives no pipeline Triton's cache, whose key leaves out shapes and requested outputs",
        f"remove it, or {LEAVE}",
    ),
    "model_transaction_policy": Reason(
        "Triton sets it by itself, from the models that are called", "remove it"
    ),
    "parameters": Reason("a pipeline has none", f"remove them, or {LEAVE}"),
    "reshape": Reason(
        "a pipeline takes and gives tensors in the shape that its models have",
        f"write the reshaped `dims` and let clients send those, or {LEAVE}",
    ),
    "optional": Reason("a pipeline needs all of its inputs", f"remove it, or {LEAVE}"),
    "label_filename": Reason(
        "labels belong to the model that gives the tensor", "set it in that model's config"
    ),
}
"""By the field's name."""

_TOP = frozenset({"name", "platform", "max_batch_size", "ensemble_scheduling"})
_TENSOR = frozenset({"name", "data_type", "dims"})
_STEP = frozenset({"model_name", "model_version", "input_map", "output_map"})


def find_limits(original: Original) -> Iterator[Difference]:
    yield from _names(original)
    yield from _fields(original)
    yield from _versions(original)


def _names(original: Original) -> Iterator[Difference]:
    config = original.config
    if problem := check_name(original.name):
        hint = f"rename the ensemble and let its callers follow, or {LEAVE}"
        yield difference(original, ("name",), problem, hint)
    if config.name not in ("", original.name):
        message = f"`name` is `{config.name}`, but the folder is `{original.name}`"
        yield difference(original, ("name",), message, "give both one name: Triton wants that too")
    inputs = {tensor.name for tensor in config.inputs}
    for kind, tensors in (("input", config.inputs), ("output", config.outputs)):
        for index, tensor in enumerate(tensors):
            place = (kind, index, "name")
            if not IDENTIFIER.fullmatch(tensor.name) or "__" in tensor.name:
                message = (
                    f"`{tensor.name}` is not a name for a pipeline's {kind}: letters, digits and "
                    "single _, no digit first"
                )
                hint = f"rename it here and in its clients, or {LEAVE}"
                yield difference(original, place, message, hint)
            elif kind == "output" and tensor.name in inputs:
                message = f"`{tensor.name}` is an input and an output: Triton keeps one tensor"
                yield difference(original, place, message, "give the output a name of its own")


def _fields(original: Original) -> Iterator[Difference]:
    """Fields that pipeline.yaml has no key for, each once, however much is inside."""
    found: dict[Location, str] = {}
    for location, value in values_of(original.text.message).items():
        if (place := _unsayable(location)) is not None:
            found.setdefault(place, "" if len(place) < len(location) or value == BLOCK else value)
    for place, value in found.items():
        name = str(place[-1])
        reason = REASONS.get(name, _UNKNOWN)
        shown = f"`{field_name(place)}`" + (f" is {value}" if value else " is set")
        yield difference(original, place, f"{shown}: {reason.why}", reason.hint)


def _unsayable(location: Location) -> Location | None:
    """The field around `location` that pipeline.yaml has no key for; None where it has one."""
    depth, known = 1, _TOP
    if location[0] in ("input", "output"):
        depth, known = 3, _TENSOR
    elif location[:2] == STEP:
        depth, known = 4, _STEP
    elif location[0] == "ensemble_scheduling":
        depth = 2
    place = location[:depth]
    return None if isinstance(place[-1], int) or place[-1] in known else place


def _versions(original: Original) -> Iterator[Difference]:
    for index, step in enumerate(original.steps):
        if step.version == -1:
            continue
        place = (*STEP, index, "model_version")
        if step.version == 0:
            message = f"step {index} (`{step.model}`) says no `model_version`, which means 0"
            yield difference(original, place, message, "write model_version: -1, the latest")
        else:
            message = (
                f"step {index} pins version {step.version} of `{step.model}`: pipeline.yaml pins "
                "none, mmctl serves each pipeline with the versions that it was built with"
            )
            hint = (
                f"write -1 and serve version {step.version} alone (version_policy of "
                f"`{step.model}`), or {LEAVE}"
            )
            yield difference(original, place, message, hint)
