"""What a config.pbtxt says, field by field, so that two of them can be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmctl.triton.schema import FieldKind, fields_of

Location = tuple[str | int, ...]
"""Fields, numbers of repeated ones, keys of maps: ("ensemble_scheduling", "step", 0, "input_map",
"x"), as `ConfigText.at` takes it."""

BLOCK = "{}"
"""The value of a block that is there and has nothing in it: an empty `reshape` means something."""

DEFAULTS: tuple[tuple[Location, str], ...] = (
    (("version_policy", "latest", "num_versions"), "1"),
    (("response_cache",), BLOCK),
    (("model_transaction_policy",), BLOCK),
)
"""Values that say what Triton does anyway."""


def values_of(message: Any) -> dict[Location, str]:
    """Every field that is set, by place; a list of numbers or words is one value."""
    return {
        location: value
        for location, value in _walk(message, ())
        if not _is_default(location, value)
    }


def _is_default(location: Location, value: str) -> bool:
    return (location, value) in DEFAULTS


def _walk(message: Any, place: Location) -> Iterator[tuple[Location, str]]:
    kinds = fields_of(message.DESCRIPTOR.full_name)
    for field, value in message.ListFields():
        kind = kinds[field.name]
        here = (*place, field.name)
        if kind.mapping:
            for key in sorted(value):
                yield from _value(value[key], fields_of(kind.message)["value"], (*here, key))
        elif kind.repeated and kind.takes == "message":
            for index, item in enumerate(value):
                yield from _value(item, kind, (*here, index))
        elif kind.repeated:
            yield here, f"[{', '.join(_word(item, kind) for item in value)}]"
        else:
            yield from _value(value, kind, here)


def _value(value: Any, kind: FieldKind, place: Location) -> Iterator[tuple[Location, str]]:
    if kind.takes != "message":
        yield place, _word(value, kind)
        return
    inner = list(_walk(value, place))
    yield from inner or [(place, BLOCK)]


def _word(value: Any, kind: FieldKind) -> str:
    if kind.words:
        return next(word for word, number in kind.words.items() if number == value)
    return str(value).lower() if kind.takes == "flag" else str(value)


def field_name(location: Location) -> str:
    """`ensemble_scheduling.step[0].input_map["x"]`, as a person would write the place."""
    text = ""
    for index, key in enumerate(location):
        if isinstance(key, int):
            text += f"[{key}]"
        elif index and str(location[index - 1]).endswith("_map"):
            text += f'["{key}"]'
        else:
            text += f".{key}" if text else key
    return text
