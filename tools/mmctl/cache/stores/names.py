"""What mmctl's keys in a shared store are called. All begin with PREFIX."""

from __future__ import annotations

PREFIX = "mmctl:1:"
"""The number moves when what lies under a name changes its form."""

EPOCHS = f"{PREFIX}epochs"
"""The channel on which moved epochs are told."""

FENCE = f"{PREFIX}fence"
"""Counts leases: each has a greater number than all before it."""

COUNTERS = f"{PREFIX}counters"
"""A hash: what each process has counted."""


def entry(key: bytes) -> str:
    """An answer under its exact or normalised key."""
    return f"{PREFIX}entry:{key.hex()}"


def lease(key: bytes) -> str:
    """Who computes the answer of a key now."""
    return f"{PREFIX}lease:{key.hex()}"


def epoch(model: str = "") -> str:
    """The epoch of a model; without one, that of all models together."""
    return f"{PREFIX}epoch:{model}"
