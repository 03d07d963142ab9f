"""Load profiles as data, and when they send. Pure.

Open loop: requests leave at times that do not depend on the answers, as users' do. A server that
stalls then meets all that came meanwhile, and latencies count from the time at which a request
should have left. Closed loop: a number of callers of whom each waits for its answer; it finds the
throughput of a server, and hides its queues.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from mmctl.errors import InputError


class Arrivals(StrEnum):
    """How requests follow each other at a given rate."""

    POISSON = "poisson"
    """Independent of each other: what many users make."""
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Phase:
    """Seconds in which the rate goes evenly from `first` to `last`, in requests a second."""

    seconds: float
    first: float
    last: float

    def expected(self, t: float) -> float:
        """How many requests are due in its first `t` seconds: the area below the rate."""
        return self.first * t + (self.last - self.first) * t * t / (2 * self.seconds)

    def time_of(self, count: float) -> float:
        """The inverse of `expected`. By the form of the quadratic formula that does not subtract
        nearly equal numbers, and that holds for an even rate too.
        """
        slope = (self.last - self.first) / self.seconds
        root = math.sqrt(max(0.0, self.first * self.first + 2 * slope * count))
        return 2 * count / (self.first + root)


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Phases, one after the other."""

    name: str
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def expected(self) -> float:
        """How many requests it has on the average."""
        return sum(phase.expected(phase.seconds) for phase in self.phases)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`callers` at once, for so many seconds at each number."""

    name: str
    callers: tuple[int, ...]
    seconds_each: float

    @property
    def seconds(self) -> float:
        return self.seconds_each * len(self.callers)


@dataclass(frozen=True, slots=True)
class Replay:
    """Recorded times of arrival in seconds, from the first request on."""

    name: str
    at: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return self.at[-1] if self.at else 0.0

    @property
    def expected(self) -> float:
        return len(self.at)


Profile = OpenLoop | ClosedLoop | Replay


def send_times(profile: OpenLoop | Replay, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Seconds from the start at which requests leave, one by one: a soak of days has many."""
    if isinstance(profile, Replay):
        yield from profile.at
        return
    rng = random.Random(seed)

    def step() -> float:
        return rng.expovariate(1.0) if arrivals is Arrivals.POISSON else 1.0

    began, due = 0.0, step()
    for phase in profile.phases:
        whole = phase.expected(phase.seconds)
        while due <= whole:
            yield began + phase.time_of(due)
            due += step()
        due -= whole
        began += phase.seconds


SOAK_S = 72 * 3600.0
STANDARD_S = 30.0
_STEP_S = 10.0

PROFILES: Mapping[str, tuple[str, str]] = {
    "baseline": ("baseline", "one request in flight"),
    "concurrency": ("concurrency:1..8", "1, 2, 4 and 8 callers that wait for their answers"),
    "rate": ("rate:50", "50 requests a second"),
    "ramp": ("ramp:1..100", "from 1 to 100 requests a second"),
    "burst": ("burst:100,500,100", "100, then 500, then 100 requests a second"),
    "soak": ("soak:300", "300 requests a second for 72 hours, or as long as you say"),
    "replay": ("replay:FILE", "recorded times of arrival, in seconds, one a line"),
}
"""By kind: how it is written, and what that one means."""


def parse_profile(
    text: str, seconds: float | None, read_times: Callable[[str], tuple[float, ...]]
) -> Profile:
    """A profile as the command line has it. `seconds` is how long it takes in all, or a level of
    `concurrency`; None takes what is usual. Raises InputError.
    """
    kind, _, given = text.partition(":")
    if kind not in PROFILES:
        raise _unreadable(text)
    if seconds is not None and not 0 < seconds < math.inf:
        raise InputError(f"a load of {seconds:g} s cannot be offered", hint="pass more than 0")
    match kind:
        case "baseline" if not given:
            return ClosedLoop(text, (1,), seconds or STANDARD_S)
        case "concurrency":
            return ClosedLoop(text, _callers(text, given), seconds or _STEP_S)
        case "rate" | "soak":
            usual = SOAK_S if kind == "soak" else STANDARD_S
            [rate] = _rates(text, given, ",", 1, 1)
            return OpenLoop(text, (Phase(seconds or usual, rate, rate),))
        case "ramp":
            first, last = _rates(text, given, "..", 2, 2)
            return OpenLoop(text, (Phase(seconds or STANDARD_S, first, last),))
        case "burst":
            rates = _rates(text, given, ",", 2, 100)
            each = (seconds or STANDARD_S) / len(rates)
            return OpenLoop(text, tuple(Phase(each, rate, rate) for rate in rates))
        case "replay" if given:
            return Replay(text, _checked(read_times(given), given))
        case _:
            raise _unreadable(text)


def _rates(text: str, given: str, between: str, least: int, most: int) -> list[float]:
    parts = given.split(between)
    if not least <= len(parts) <= most:
        raise _unreadable(text)
    try:
        rates = [float(part) for part in parts]
    except ValueError:
        raise _unreadable(text) from None
    if not all(0 < rate < math.inf for rate in rates):
        raise _unreadable(text)
    return rates


def _callers(text: str, given: str) -> tuple[int, ...]:
    """`8`, `1,4,16` or `1..8`, which doubles."""
    if match := re.fullmatch(r"([1-9]\d{0,4})\.\.([1-9]\d{0,4})", given):
        first, last = int(match[1]), int(match[2])
        if first <= last:
            doubled = [first << n for n in range(20) if first << n < last]
            return (*doubled, last)
    if re.fullmatch(r"[1-9]\d{0,4}(,[1-9]\d{0,4})*", given):
        return tuple(int(part) for part in given.split(","))
    raise _unreadable(text)


def _checked(times: tuple[float, ...], file: str) -> tuple[float, ...]:
    if not times:
        raise InputError(f"{file}: no times of arrival", hint="write one a line, in seconds")
    for line, (before, after) in enumerate(zip((times[0], *times), times, strict=False), start=1):
        if not before <= after < math.inf:
            raise InputError(
                f"{file}:{line}: {after:g} comes after {before:g}", hint="sort the times"
            )
    return tuple(time - times[0] for time in times)


def _unreadable(text: str) -> InputError:
    known = "; ".join(f"`{example}`: {told}" for example, told in PROFILES.values())
    return InputError(f"`{text}` is no load profile", hint=f"write one like these: {known}")
