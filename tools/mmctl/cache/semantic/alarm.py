"""Whether a promised rate of errors is broken, asked after every probe and right each time.

A bet against the promise: capital begins at 1, and under a rate of at most `promised` it is not
expected to grow, whatever the bets; so it reaches 1 / 0.05 with a chance of at most 5 %, ever, and
looking after each probe costs nothing (Ville). Stakes are spread over how wrong the gate may be,
and over when that may have begun, so that a change after a long good time is found too.
"""

from __future__ import annotations

from typing import Any

CONFIDENCE = 0.95

_TIMES = (2.0, 4.0, 8.0)
"""The error may have grown so many times."""
_MOST = 0.9


class Alarm:
    """One promise. Not for several threads at once."""

    def __init__(self, promised: float) -> None:
        self.promised = promised
        self._stakes = [0.0] * len(_TIMES)
        self.probes = 0
        self.errors = 0

    def add(self, wrong: bool) -> bool:
        """Count a probe; gives `rings`."""
        self.probes += 1
        self.errors += wrong
        begins = 1 / (self.probes * (self.probes + 1))
        for place, times in enumerate(_TIMES):
            said = min(times * self.promised, max(_MOST, self.promised))
            odds = said / self.promised if wrong else (1 - said) / (1 - self.promised)
            self._stakes[place] = (self._stakes[place] + begins) * odds
        return self.rings

    @property
    def capital(self) -> float:
        """What the bets have become, with what is not yet at stake."""
        return sum(self._stakes) / len(_TIMES) + 1 / (self.probes + 1)

    @property
    def rings(self) -> bool:
        return self.capital >= 1 / (1 - CONFIDENCE)

    def saved(self) -> dict[str, Any]:
        """Plain data, for `restored`."""
        return {"stakes": self._stakes, "probes": self.probes, "errors": self.errors}

    @classmethod
    def restored(cls, promised: float, saved: dict[str, Any]) -> Alarm:
        """Raises ValueError, TypeError, KeyError or OverflowError for what `saved` never gives."""
        alarm = cls(promised)
        alarm._stakes = [float(stake) for stake in saved["stakes"]]
        alarm.probes, alarm.errors = int(saved["probes"]), int(saved["errors"])
        if len(alarm._stakes) != len(_TIMES) or not 0 <= alarm.errors <= alarm.probes:
            raise ValueError("no alarm")
        return alarm
