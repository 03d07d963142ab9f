"""What a drill finds: one row for each fault of each node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """NONE: nothing was promised, or nothing could be tried."""

    KEPT = "kept"
    BROKEN = "broken"
    NONE = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """`node` "" is the pipeline as a whole. `ms` and `bound_ms` are of the request that came
    nearest to breaking the promise.
    """

    node: str
    fault: str
    promised: str
    got: str
    verdict: Verdict
    ms: float | None = None
    bound_ms: float | None = None
