"""The sequence batcher and the response cache in a config.pbtxt: S001 to S004.

Source of the rules: ValidateModelConfig of Triton's core, 24.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmctl.diagnostics import Rule, Severity
from mmctl.lint.ensembles.calls import decoupled_models
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.schema import word_of

# ---------------------------------------------------------------- S001


def _find_refused_cache(model: Model, repository: Repository) -> Iterator[Mistake]:
    message = model.message
    if not message.response_cache.enable:
        return
    if message.HasField("sequence_batching"):
        what = "a model with a sequence batching scheduler"
    elif message.model_transaction_policy.decoupled and not model.is_ensemble:
        what = "a decoupled model"
    elif model.is_ensemble and model.name in decoupled_models(repository):
        what = "an ensemble with a decoupled model among its steps"
    else:
        return
    yield Mistake(
        model.at("response_cache"),
        f"Triton has no response cache for {what}",
        "leave `response_cache` out",
    )


REFUSED_CACHE = Check(
    Rule(
        "S001",
        "response cache that Triton refuses",
        "Models with a sequence batcher, decoupled models and ensembles that call a decoupled "
        "model cannot have a response cache.",
        wrong="model_transaction_policy { decoupled: true }\nresponse_cache { enable: true }",
        right="model_transaction_policy { decoupled: true }",
    ),
    _find_refused_cache,
)

# ---------------------------------------------------------------- S002


def _find_unsound_cache(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    if not message.response_cache.enable:
        return
    batch_axis = int(message.max_batch_size > 0)
    for tensor in message.input:
        free = sum(dim == -1 for dim in tensor.dims)
        if free and free + batch_axis > 1:
            yield _unsound(
                model,
                f"input `{tensor.name}` may have the same bytes in two shapes, and the response "
                "cache does not compare shapes",
            )
            break
    if len(message.output) > 1:
        yield _unsound(
            model,
            f"the response cache does not compare which of the {len(message.output)} outputs a "
            "request asks for",
        )


def _unsound(model: Model, message: str) -> Mistake:
    hint = "leave `response_cache` out, and cache in the client"
    return Mistake(model.at("response_cache"), f"{message}: it gives the answer of another", hint)


UNSOUND_CACHE = Check(
    Rule(
        "S002",
        "response cache that may answer wrongly",
        "The key of Triton's response cache is the model, its version and the bytes of the inputs. "
        "Shapes, types, parameters and the outputs that were asked for are not in it, and a reload "
        "of the same version does not empty it.",
        Severity.WARNING,
        wrong='input { name: "x" dims: [ -1, -1 ] ... }\nresponse_cache { enable: true }',
        right='input { name: "x" dims: [ -1, -1 ] ... }',
    ),
    _find_unsound_cache,
)

# ---------------------------------------------------------------- S003

VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
ONCE = ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY")
CORRELATION = "CONTROL_SEQUENCE_CORRID"
CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def _find_wrong_controls(model: Model, _repository: Repository) -> Iterator[Mistake]:
    tensors: set[str] = set()
    kinds: dict[str, str] = {}
    for number, tensor in enumerate(model.message.sequence_batching.control_input):
        place = ("sequence_batching", "control_input", number)
        if not tensor.name:
            yield Mistake(model.at(*place), "a control input needs a `name`")
        elif tensor.name in tensors:
            yield Mistake(
                model.at(*place, "name"),
                f"the control tensor `{tensor.name}` is specified for multiple controls",
                "give each control a tensor of its own",
            )
        tensors.add(tensor.name)
        for index, control in enumerate(tensor.control):
            kind = word_of(control, "kind")
            at = model.at(*place, "control", index)
            if kind in kinds:
                yield Mistake(
                    at,
                    f"`{kind}` has multiple tensors: `{kinds[kind]}` and `{tensor.name}`",
                    "leave one out",
                )
            kinds.setdefault(kind, tensor.name)
            if (wrong := _wrong_values(control, kind)) is not None:
                yield Mistake(at, *wrong)


def _wrong_values(control: Any, kind: str) -> tuple[str, str] | None:
    """What is wrong, and a hint."""
    given = [field for field in VALUES if getattr(control, field)]
    if kind == CORRELATION:
        if given:
            return f"`{kind}` takes no `{given[0]}`", _UINT64
        if word_of(control, "data_type") not in CORRELATION_TYPES:
            return f"`{kind}` needs a data type: {', '.join(CORRELATION_TYPES)}", _UINT64
    return _wrong_pair(control, kind, given) if kind in ONCE else None


def _wrong_pair(control: Any, kind: str, given: list[str]) -> tuple[str, str] | None:
    if not given:
        return f"`{kind}` has no value: one of {', '.join(f'`{v}`' for v in VALUES)}", _TWO
    if len(given) > 1:
        return f"`{kind}` has more than one value: {', '.join(f'`{v}`' for v in given)}", _TWO
    count = len(getattr(control, given[0]))
    if count != 2:
        return f"`{given[0]}` of `{kind}` must have exactly 2 entries, and has {count}", _TWO
    return None


_TWO = "write what stands for false and for true: `int32_false_true: [ 0, 1 ]`"
_UINT64 = "write `data_type: TYPE_UINT64`"

WRONG_CONTROLS = Check(
    Rule(
        "S003",
        "wrong control input of a sequence model",
        "A control input is a tensor that tells the model about the sequence: START, END and READY "
        "with the two values for false and true, CORRID with a data type. Each control stands "
        "once and has a tensor of its own.",
        wrong='control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY } }',
        right='control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY\n'
        "  int32_false_true: [ 0, 1 ] } }",
    ),
    _find_wrong_controls,
)

# ---------------------------------------------------------------- S004


def _find_wrong_share(model: Model, _repository: Repository) -> Iterator[Mistake]:
    share = model.message.sequence_batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        yield Mistake(
            model.at("sequence_batching", "direct", "minimum_slot_utilization"),
            f"`minimum_slot_utilization` is {share:g}, and must be in the range 0 to 1",
        )


WRONG_SHARE = Check(
    Rule(
        "S004",
        "slot utilization that is no share",
        "`minimum_slot_utilization` is the share of slots, from 0 to 1, that must be taken before "
        "the delay ends the waiting.",
        wrong="direct { minimum_slot_utilization: 50 }",
        right="direct { minimum_slot_utilization: 0.5 }",
    ),
    _find_wrong_share,
)

SEQUENCE_CHECKS: tuple[Check, ...] = (REFUSED_CACHE, UNSOUND_CACHE, WRONG_CONTROLS, WRONG_SHARE)
