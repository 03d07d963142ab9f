"""What can happen to a node."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """In the order in which a drill goes: after `dead` the process is gone."""

    SLOW = "slow"
    """It answers, long after its time."""
    RAISING = "raising"
    """It answers with an error."""
    EMPTY = "empty"
    """Its outputs have no rows, or are left out where there is no batch axis."""
    MISSHAPED = "misshaped"
    """Its outputs have one row, or one axis, too many."""
    DEAD = "dead"
    """Its process exits when it is asked."""


UNCHECKED = (Fault.EMPTY, Fault.MISSHAPED)
"""Answers that are wrong rather than none: an ensemble hands them on as they are."""
SLEEP_MS = 500.0
LEAST_SLEEP_MS = 300.0
SLEEP_FACTOR = 3


def sleep_ms(limit_ms: float | None) -> float:
    """How long a slow node sleeps that has this long to answer."""
    return SLEEP_MS if limit_ms is None else max(LEAST_SLEEP_MS, SLEEP_FACTOR * limit_ms)
