"""Replies against a promise -> a row of the table. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mmctl.trials.promises import Outcome, Promise, Sources
from mmctl.trials.rows import Row, Verdict


@dataclass(frozen=True, slots=True)
class Tried:
    """One request and how it ended. `error` is Triton's; `wrong` says in which way an answer is
    not one of those that may be promised.
    """

    ms: float
    bound_ms: float | None
    error: str = ""
    wrong: Mapping[Sources, str] = field(default_factory=dict)
    hung: bool = False

    @property
    def is_late(self) -> bool:
        return self.bound_ms is not None and self.ms > self.bound_ms

    @property
    def spare_ms(self) -> float:
        """How much longer it might have taken."""
        return -self.ms if self.bound_ms is None else self.bound_ms - self.ms


def judge(node: str, fault: str, promise: Promise, tries: Sequence[Tried]) -> Row:
    """The first request that breaks the promise, else the one that came nearest to being late."""
    broken = [(t, got) for t in tries if (got := find_breach(promise, t)) is not None]
    tried = broken[0][0] if broken else min(tries, key=lambda t: t.spare_ms)
    got = broken[0][1] if broken else _kept(promise, tried)
    verdict = Verdict.BROKEN if broken else Verdict.KEPT
    return Row(node, fault, promise.text, got, verdict, tried.ms, tried.bound_ms)


def _kept(promise: Promise, tried: Tried) -> str:
    if tried.error:
        return f"error: {plain(tried.error)}"
    return "the right answer" if promise.outcome is Outcome.RIGHT else "as declared"


def find_breach(promise: Promise, tried: Tried) -> str | None:
    """In which way a request ended other than promised; of several ways the first is told."""
    breaches = [_breach(way, tried) for way in promise.ways]
    return None if None in breaches else breaches[0]


def _breach(promise: Promise, tried: Tried) -> str | None:
    if tried.hung:
        return f"nothing after {tried.ms / 1000:.0f} s"
    if promise.outcome is Outcome.ERROR:
        breach = _wrong_error(promise, tried)
    elif tried.error:
        breach = f"error: {plain(tried.error)}"
    else:
        breach = tried.wrong.get(promise.sources)
    if breach is None and tried.is_late:
        return "late"
    return breach


def _wrong_error(promise: Promise, tried: Tried) -> str | None:
    if not tried.error:
        return "an answer"
    if promise.names and f"node `{promise.names}`" not in tried.error:
        return f"another error: {plain(tried.error)}"
    return None


def plain(error: str) -> str:
    """Without the model's name and the trace of a Python model."""
    first = error.strip().splitlines()[0] if error.strip() else "without a word"
    return re.sub(r"^model `[^`]*`: ", "", first)
