"""CPU time of a process tree, medians with intervals, pairs in turn, and the circumstances."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Generic, TypeVar

from mmctl.loadtest.machine import cpu_seconds, environment

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R", bound="DataclassInstance")


def tree_cpu_ms(root: int) -> float:
    """CPU time so far of `root` and all that descends from it."""
    return 1000 * cpu_seconds(root)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Median with an interval of at least 95 %, from order statistics: no distribution assumed."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def estimate(values: Sequence[float]) -> Estimate:
    ordered = sorted(values)
    count = len(ordered)
    cut = 0
    while 2 * sum(math.comb(count, k) for k in range(cut + 1)) / 2**count <= 0.05:
        cut += 1
    first = max(0, cut - 1)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Estimate(median, ordered[first], ordered[count - 1 - first])


def interleaved(pairs: int, one: Callable[[], A], other: Callable[[], B]) -> Iterator[tuple[A, B]]:
    """Both sides `pairs` times, taking turns in going first, so that drift cancels out."""
    for turn in range(pairs):
        if turn % 2 == 0:
            first = one()
            yield first, other()
        else:
            second = other()
            yield one(), second


def in_process(*packages: str) -> str:
    """Versions of what runs here and not in a server."""
    shown = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"in process Python {platform.python_version()}, {shown}"


def circumstances(versions: str) -> dict[str, str]:
    """When, on what and with which command is measured, beside the `versions`."""
    here = environment()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{here['cores']} cores of {here['cpu']}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "versions": versions,
        "command": shlex.join(sys.argv),
    }


def say(message: str) -> None:
    """Progress, beside the table or the JSON."""
    print(message, file=sys.stderr, flush=True)


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """With what every benchmark has: its docstring as its help, and `--json`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="JSON on stdout, the table on stderr")
    return parser


class Table(Generic[R]):
    """The circumstances and a line a row, as soon as it is measured; all of it as JSON at the end
    when that was asked for.
    """

    def __init__(self, around: Mapping[str, str], header: str, *, json: bool) -> None:
        self.rows: list[R] = []
        self._around, self._json = around, json
        self._file = sys.stderr if json else sys.stdout
        print(*(f"{key}: {value}" for key, value in around.items()), header, sep="\n",
              file=self._file)  # fmt: skip

    def add(self, row: R) -> None:
        self.rows.append(row)
        print(row, file=self._file, flush=True)

    def end(self, **method: object) -> None:
        """`method` says how the rows were measured."""
        if self._json:
            rows = [asdict(row) for row in self.rows]
            print(json.dumps({**self._around, **method, "rows": rows}, indent=2))
