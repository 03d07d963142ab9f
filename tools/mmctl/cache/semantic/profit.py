"""Whether a semantic level saves more than it costs: every miss pays for embedding and search."""

from __future__ import annotations

from collections import deque

LOOKUPS = 1000
"""Of so many the hits are counted, before the first verdict too."""
MARGIN = 1.2
"""It must save so many times its cost."""
PAUSE = 10_000
"""Requests that pass before it is tried again; after each failed try twice as many."""
LONGEST_PAUSE = 16 * PAUSE


class Profit:
    """One level's. Not for several threads at once."""

    def __init__(self) -> None:
        self._hits: deque[bool] = deque(maxlen=LOOKUPS)
        self._skipped = 0
        self._pause = 0
        self._next_pause = PAUSE

    @property
    def hit_rate(self) -> float:
        """Of the last 1,000 lookups."""
        return sum(self._hits) / len(self._hits) if self._hits else 0.0

    def add(self, hit: bool) -> None:
        """Count a lookup; a hit is one that saved the model's run, or may well have."""
        self._hits.append(hit)

    def pays(self, model_ms: float, cost_ms: float) -> bool:
        """Asked before each lookup. `cost_ms` is that of embedding and search."""
        if self._pause:
            self._skipped += 1
            if self._skipped < self._pause:
                return False
            self._pause = self._skipped = 0
            self._hits.clear()
            return True
        if len(self._hits) < LOOKUPS:
            return True
        if self.hit_rate * model_ms >= MARGIN * cost_ms:
            self._next_pause = PAUSE
            return True
        self._pause = self._next_pause
        self._next_pause = min(2 * self._next_pause, LONGEST_PAUSE)
        return False
