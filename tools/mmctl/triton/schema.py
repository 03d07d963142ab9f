"""The fields that a config.pbtxt may have, read from Triton's own protobuf description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from mmctl.triton.pbtxt import message_of, new_message
from mmctl.triton.releases import Release

Takes = Literal["message", "word", "string", "flag", "integer", "float"]


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One field. `low` and `high` bound integers; `words` are the names of an enum and their
    numbers; `message` is the kind of message that it holds; of the fields of a `group` one may be
    set. A `mapping` is written as blocks with `key` and `value`. Without `presence` a field that is
    0 is as one that is not there.
    """

    name: str
    takes: Takes
    repeated: bool = False
    mapping: bool = False
    message: str = ""
    group: str = ""
    presence: bool = False
    words: Mapping[str, int] | None = None
    low: int = 0
    high: int = 0


ROOT = "inference.ModelConfig"

FIELDS_SINCE: Mapping[str, Release] = {
    "inference.ModelSequenceBatching.iterative_sequence": Release(23, 11),
    "inference.ModelSequenceBatching.State.use_same_buffer_for_input_output": Release(23, 11),
    "inference.ModelSequenceBatching.State.use_growable_memory": Release(23, 11),
    "inference.ModelConfig.runtime": Release(24, 1),
    "inference.ModelInput.is_non_linear_format_io": Release(24, 8),
    "inference.ModelOutput.is_non_linear_format_io": Release(24, 8),
    "inference.ModelConfig.model_metrics": Release(24, 11),
    "inference.ModelEnsembling.max_inflight_requests": Release(25, 11),
}
"""Fields younger than the oldest release that mmctl knows: an older Triton refuses the file.
Read from model_config.proto of each release branch.
"""


@cache
def fields_of(message: str) -> Mapping[str, FieldKind]:
    """The fields of a kind of message, by name."""
    descriptor = _descriptors()[message]
    return {field.name: _kind_of(field) for field in descriptor.fields}


def word_of(message: Any, field: str) -> str:
    """The word of a field that takes one; "" for a number that has no word."""
    words = fields_of(message.DESCRIPTOR.full_name)[field].words or {}
    number = getattr(message, field)
    return next((word for word, value in words.items() if value == number), "")


def new_entry(mapping: str) -> Any:
    """An empty `key` and `value` of a mapping, by the name of its message."""
    return message_of(_descriptors()[mapping])


@cache
def _descriptors() -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    waiting = [new_message().DESCRIPTOR]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name not in found:
            found[descriptor.full_name] = descriptor
            waiting += [field.message_type for field in descriptor.fields if field.message_type]
    return found


def _kind_of(field: Any) -> FieldKind:
    message = field.message_type
    mapping = bool(message and message.GetOptions().map_entry)
    takes, low, high = _takes(field)
    return FieldKind(
        name=field.name,
        takes=takes,
        repeated=_is_repeated(field),
        mapping=mapping,
        message=message.full_name if message else "",
        group=field.containing_oneof.name if field.containing_oneof else "",
        presence=field.has_presence,
        words={value.name: value.number for value in field.enum_type.values}
        if field.enum_type
        else None,
        low=low,
        high=high,
    )


def _is_repeated(field: Any) -> bool:
    # Newer protobuf has a property and warns of `label`, older has `label` only.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _takes(field: Any) -> tuple[Takes, int, int]:
    kinds: dict[int, tuple[Takes, int, int]] = {
        field.CPPTYPE_MESSAGE: ("message", 0, 0),
        field.CPPTYPE_ENUM: ("word", 0, 0),
        field.CPPTYPE_STRING: ("string", 0, 0),
        field.CPPTYPE_BOOL: ("flag", 0, 0),
        field.CPPTYPE_FLOAT: ("float", 0, 0),
        field.CPPTYPE_DOUBLE: ("float", 0, 0),
        field.CPPTYPE_INT32: ("integer", -(2**31), 2**31 - 1),
        field.CPPTYPE_INT64: ("integer", -(2**63), 2**63 - 1),
        field.CPPTYPE_UINT32: ("integer", 0, 2**32 - 1),
        field.CPPTYPE_UINT64: ("integer", 0, 2**64 - 1),
    }
    return kinds[field.cpp_type]
