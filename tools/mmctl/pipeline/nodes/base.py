"""What every node kind has in common: inputs, and the policies of design 5."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mmctl.documents import Entry, Flag
from mmctl.triton.options import Count, Milliseconds

Retries = Annotated[int, Field(ge=0, le=100)]


class Quorum(Entry):
    """`{need: 2, of: [a, b, c]}`: go on when two of three nodes have answered."""

    need: Count
    of: Annotated[tuple[str, ...], Field(min_length=1)]


class NodeEntry(Entry):
    """Fields are the keys of the YAML entry. `inputs` maps the callee's names to references."""

    inputs: dict[str, str] = Field(default_factory=dict)
    timeout_ms: Milliseconds | None = None
    retries: Retries = 0
    on_error: Any = "fail"
    required: Flag = True
    hedge_ms: Milliseconds | None = None
    quorum: Quorum | None = None
    when: Annotated[str, Field(max_length=500)] | None = None
    foreach: str | None = None
    after: tuple[str, ...] = ()


POLICIES = ("timeout_ms", "retries", "on_error", "required", "hedge_ms", "quorum", "when",
            "foreach", "after")  # fmt: skip
"""Keys that only a form with a runner can keep."""


def policies_used(node: NodeEntry) -> list[str]:
    """Policies that differ from what an ensemble does anyway."""
    fields = type(node).model_fields
    return [
        name
        for name in POLICIES
        if getattr(node, name) != fields[name].get_default(call_default_factory=True)
    ]
