"""Language models that an engine runs by itself: its options, passed on as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

WHOLE = re.compile(r"-?[0-9]+")
REAL = re.compile(r"-?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?|-?[0-9]+[eE][-+][0-9]+")
WORDS: Mapping[str | None, bool | None] = {"true": True, "false": False, None: None}


def typed(value: object) -> object:
    """Text of a YAML file as JSON has it: mmctl does not know which type an engine wants."""
    if isinstance(value, Mapping):
        return {str(key): typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if not isinstance(value, str | None):
        return value
    if value in WORDS:
        return WORDS[value]
    if WHOLE.fullmatch(value or ""):
        return int(value or "")
    return float(value or "") if REAL.fullmatch(value or "") else value


def _positive_sizes(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        size = options.get(name, 1)
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"`{name}` is {size!r}; write a number of GPUs, 1 or more")
    return options


Options = Annotated[dict[str, Any], BeforeValidator(typed), AfterValidator(_positive_sizes)]


def _on_the_server(name: str) -> str:
    if not name or name.startswith((".", "package:", "https://", "http://")):
        raise ValueError(f"`{name}` is neither an absolute path on the server nor an id of a hub")
    return name


ServedModel = Annotated[str, AfterValidator(_on_the_server)]
"""What the engine loads when the server starts: mmctl neither has nor needs the weights."""
