"""Numbers of a model beside those that Triton has, shown among its metrics.

Part of the runners of pipelines and steps (model.py). Triton takes an error that a Python model
answers with for an answer, and knows nothing of nodes.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

FAILURES = "mmctl_request_failure"
FALLBACKS = "mmctl_node_fallback"
CACHE_HITS = "mmctl_node_cache_hits"
CACHE_MISSES = "mmctl_node_cache_misses"

FAMILIES: Mapping[str, tuple[str, str, str]] = {
    FAILURES: ("model", "reason", "Requests that a Python model answered with an error"),
    FALLBACKS: ("pipeline", "node", "Requests in which a policy stood in for a node that failed"),
    CACHE_HITS: ("pipeline", "node", "Rows that a node did not run, for their answer was kept"),
    CACHE_MISSES: ("pipeline", "node", "Rows that a node with a cache ran"),
}
"""What the model's own name is a label of, the other label, and what is counted."""
TELL_S = 1.0

Counted = tuple[str, str]
"""A family, and the value of its other label."""


class Counters:
    """Counts from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Counted, int] = {}
        self.has_news = threading.Event()

    def add(self, family: str, label: str, count: int = 1) -> None:
        with self._lock:
            self._counts[family, label] = self.read(family, label) + count
        self.has_news.set()

    def read(self, family: str, label: str) -> int:
        return self._counts.get((family, label), 0)


class Teller:
    """Tells Triton what was counted: when it is asked to, or once it is started from a thread of
    its own, once a second while there is news.

    Only one thread may: where two tell at once, the memory that Triton shares with the model
    breaks, and the server dies of it (`lock_exception`; in 2.51 within the first requests).
    """

    def __init__(self, counters: Counters, model: str, told: Iterable[Counted]) -> None:
        self._counters = counters
        self._families: dict[str, Any] = {}
        self._metrics: dict[Counted, Any] = {}
        self._told: dict[Counted, int] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        try:
            self._make(model, told)
        except Exception:  # noqa: BLE001 - metrics are off, or unknown to this Triton
            traceback.print_exc()
            self._metrics = {}

    def _make(self, model: str, told: Iterable[Counted]) -> None:
        """All of them at 0: what is not there yet has no rate."""
        import triton_python_backend_utils as pb_utils

        for name, value in told:
            own, other, about = FAMILIES[name]
            if name not in self._families:
                kind = pb_utils.MetricFamily.COUNTER
                family = pb_utils.MetricFamily(name=name, description=about, kind=kind)
                self._families[name] = family
            labels = {own: model, other: value}
            self._metrics[name, value] = self._families[name].Metric(labels=labels)

    def start(self) -> None:
        if self._metrics:
            self._thread.start()

    def stop(self) -> None:
        """What was counted last is told before."""
        self._is_over.set()
        self._counters.has_news.set()
        if self._metrics:
            self._thread.join(TELL_S)

    def _loop(self) -> None:
        news, is_last = self._counters.has_news, False
        while not is_last:
            news.wait()
            news.clear()
            is_last = self._is_over.is_set()
            self.tell()
            self._is_over.wait(TELL_S)

    def tell(self) -> None:
        for counted, metric in self._metrics.items():
            count = self._counters.read(*counted)
            if count > (told := self._told.get(counted, 0)):
                metric.increment(count - told)
                self._told[counted] = count
