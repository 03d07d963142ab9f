"""What came of each request, counted while a load runs. Latencies go into HdrHistograms: three
digits of every value, whatever its size, in little memory for days.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mmctl.quantiles import PERCENTS, rank

DIGITS = 3
MOST_US = 3_600_000_000
"""An hour; what takes longer counts as that."""


class Histogram:
    """Times in seconds; told in milliseconds."""

    def __init__(self, encoded: str | None = None) -> None:
        from hdrh.histogram import HdrHistogram

        if encoded is None:
            self._counts = HdrHistogram(1, MOST_US, DIGITS)
        else:
            self._counts = HdrHistogram.decode(encoded.encode())

    def add(self, seconds: float) -> None:
        self._counts.record_value(min(MOST_US, max(1, round(seconds * 1e6))))

    def merge(self, other: Histogram) -> None:
        self._counts.add(other._counts)

    @property
    def count(self) -> int:
        return int(self._counts.get_total_count())

    def quantile_ms(self, percent: float) -> float | None:
        """Nearest rank, so it is a latency that really happened; None without any."""
        if not self.count:
            return None
        # The library goes through its 20,000 counts one by one in Python, while requests wait.
        wanted = rank(self.count, percent / 100) + 1
        return self._highest(int(np.searchsorted(np.cumsum(self._array()), wanted))) / 1000

    @property
    def max_ms(self) -> float | None:
        return self._counts.get_max_value() / 1000 if self.count else None

    @property
    def mean_ms(self) -> float | None:
        if not self.count:
            return None
        return float(sum(ms * count for ms, count in self.counts()) / self.count)

    def counts(self) -> list[tuple[float, int]]:
        """(milliseconds, how often) of each value there was, in order."""
        counts = self._array()
        return [(self._highest(int(n)) / 1000, int(counts[n])) for n in np.flatnonzero(counts)]

    def _array(self) -> npt.NDArray[np.int64]:
        return np.ctypeslib.as_array(self._counts.counts)

    def _highest(self, index: int) -> int:
        """The greatest value that counts at an index, as quantiles have it too."""
        value = self._counts.get_value_from_index(index)
        return int(self._counts.get_highest_equivalent_value(value))

    def encoded(self) -> str:
        """HdrHistogram's own portable form, in base64."""
        return str(self._counts.encode().decode())

    def told(self) -> dict[str, float | None]:
        """Milliseconds by name: quantiles, mean, max."""
        quantiles = {name: self.quantile_ms(q) for name, q in PERCENTS.items()}
        return {**quantiles, "mean": self.mean_ms, "max": self.max_ms}


@dataclass(slots=True)
class Slice:
    """A stretch of a load: what was due in it, and what came of that, whenever it came."""

    start: float
    seconds: float
    offered: int = 0
    completed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latency: Histogram = field(default_factory=Histogram)

    @property
    def failed(self) -> int:
        return self.errors.total()

    def told(self) -> dict[str, Any]:
        return {
            "start_s": self.start,
            "seconds": self.seconds,
            "offered": self.offered,
            "completed": self.completed,
            "failed": self.failed,
            "latency_ms": self.latency.told(),
            "histogram": self.latency.encoded(),
        }


class Recorder:
    """Counts a load of `seconds`, in at most `slices` slices. Not for several threads at once.

    Latency counts from when a request was due, not from when it left: what waited because the
    server, or this machine, was busy has waited. Lag is how much later it left than it was due:
    that is this machine's share, and it must be small.
    """

    def __init__(self, seconds: float, slices: int = 60) -> None:
        self.seconds = seconds
        self.lag = Histogram()
        each = max(seconds / slices, 0.5)
        count = max(1, math.floor(seconds / each + 1e-9))
        self.slices = [Slice(n * seconds / count, seconds / count) for n in range(count)]

    def sent(self, due: float, at: float) -> None:
        """A request that was due `due` seconds after the start has left at `at`."""
        self._slice(due).offered += 1
        self.lag.add(max(0.0, at - due))

    def answered(self, due: float, at: float) -> None:
        part = self._slice(due)
        part.completed += 1
        part.latency.add(at - due)

    def failed(self, due: float, reason: str) -> None:
        self._slice(due).errors[reason] += 1

    def _slice(self, due: float) -> Slice:
        share = due / self.seconds if self.seconds else 0.0
        return self.slices[min(len(self.slices) - 1, max(0, int(share * len(self.slices))))]

    @property
    def whole(self) -> Slice:
        """All slices in one."""
        return joined(self.slices, self.seconds)


def joined(parts: list[Slice], seconds: float) -> Slice:
    whole = Slice(0.0, seconds)
    for part in parts:
        whole.offered += part.offered
        whole.completed += part.completed
        whole.errors.update(part.errors)
        whole.latency.merge(part.latency)
    return whole


def slice_of(told: Mapping[str, Any]) -> Slice:
    """The reverse of `Slice.told`; reasons of errors are kept once for the whole load."""
    errors = Counter({"": int(told["failed"])}) if told["failed"] else Counter[str]()
    return Slice(
        start=float(told["start_s"]),
        seconds=float(told["seconds"]),
        offered=int(told["offered"]),
        completed=int(told["completed"]),
        errors=errors,
        latency=Histogram(str(told["histogram"])),
    )
