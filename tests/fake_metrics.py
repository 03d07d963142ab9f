"""Triton's custom metrics as a Python model sees them, for tests without a server."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any


class FakeMetrics:
    """`MetricFamily` is what a model finds in its backend; `shown` what a server would show."""

    def __init__(self) -> None:
        self.shown: dict[tuple[str, str], float] = {}
        """By family and label, without the model's own name."""
        self.models: set[str] = set()
        self.tellers: set[int] = set()
        """Threads that told of something."""
        outer = self

        class MetricFamily:
            COUNTER = "counter"

            def __init__(self, name: str, description: str, kind: str) -> None:
                assert description
                assert kind == self.COUNTER
                self._name = name

            def Metric(self, labels: Mapping[str, str]) -> Any:
                own, other = labels.values()
                outer.models.add(own)
                return outer._metric(self._name, other)

        self.MetricFamily = MetricFamily

    def _metric(self, family: str, label: str) -> Any:
        self.shown[family, label] = 0.0
        outer = self

        class Metric:
            def increment(self, count: float) -> None:
                outer.tellers.add(threading.get_ident())
                outer.shown[family, label] += count

        return Metric()
