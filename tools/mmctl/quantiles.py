"""Quantiles by nearest rank: always a value that is there, never one in between. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

PERCENTS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
"""Those that are told of a load, by name."""


def rank(count: int, share: float) -> int:
    """Of so many sorted values the index of the least that `share` (0 to 1) of them do not exceed;
    0 where there is none.
    """
    # 0.95 and its like are no binary fractions: 1e-9 keeps a rank from being one too high.
    return max(0, math.ceil(share * count - 1e-9) - 1)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Raises IndexError without any value."""
    return ordered[rank(len(ordered), share)]
