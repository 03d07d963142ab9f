"""Where more load stops paying: the knee of throughput against latency. Pure.

By Kleinrock's power, throughput divided by mean latency: up to its greatest value a further caller
brings more throughput than waiting, from there on more waiting than throughput. It needs no
threshold, and few points will do. (L. Kleinrock, "Power and deterministic rules of thumb for
probabilistic problems in computer communications", ICC 1979.)
"""

from __future__ import annotations

from collections.abc import Sequence

LEAST = 3
"""Levels; fewer have no shape."""


def knee(throughputs: Sequence[float], latencies: Sequence[float | None]) -> int | None:
    """The index of the level at the knee: levels with less load first, latencies are means.

    None where it was not reached, so that even the last level pays, and where there are too few
    levels. A level without any answer has no power.
    """
    powers = [
        throughput / latency if latency else 0.0
        for throughput, latency in zip(throughputs, latencies, strict=True)
    ]
    if len(powers) < LEAST or max(powers) == 0.0:
        return None
    best = powers.index(max(powers))
    return best if best < len(powers) - 1 else None
