"""What every node kind has in common: inputs, and the policies of a node."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mmctl.documents import Entry, Flag
from mmctl.triton.options import Count

TimeLimit = Annotated[float, Field(gt=0, le=3_600_000)]
"""Milliseconds; 0 would leave no time at all."""

ConditionText = Annotated[str, Field(max_length=500)]


class QuorumEntry(Entry):
    """`{need: 2, of: [a, b, c]}`: go on when two of three nodes have answered."""

    need: Count
    of: Annotated[tuple[str, ...], Field(min_length=1)]


class CacheEntry(Entry):
    """`{ttl_s: 60}`: an answer is reused for so long after it was given."""

    ttl_s: Annotated[float, Field(gt=0, le=2_592_000)]


class NodeEntry(Entry):
    """Fields are the keys of the YAML entry. `inputs` maps the callee's names to references."""

    inputs: dict[str, str] = Field(default_factory=dict)
    timeout_ms: TimeLimit | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    on_error: Any = "fail"
    required: Flag = True
    hedge_ms: TimeLimit | None = None
    quorum: QuorumEntry | None = None
    when: ConditionText | None = None
    foreach: str | None = None
    after: tuple[str, ...] = ()
    max_in_flight: Annotated[int, Field(ge=1, le=256)] | None = None
    cache: CacheEntry | None = None
