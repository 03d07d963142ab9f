"""What Triton's log says and its API does not: why a model did not load. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mmctl.server.control import ModelState

_LINE = re.compile(r"^([IWEF])\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] +(.*)$")
_PROTOBUF = re.compile(r"^\[libprotobuf ERROR [^\]]*\] (?:Error parsing[^:]*: )?(\d+:\d+: .*)$")
_TEXT_PROTO = re.compile(r"failed to read text proto from (\S+)")
_FAILURES = (
    re.compile(r"^Poll failed for model directory '(?P<model>[^']+)': (?P<reason>.*)", re.S),
    re.compile(r"^failed to load model '(?P<model>[^']+)': (?P<reason>.*)", re.S),
    re.compile(r"^failed to load '(?P<model>[^']+)' version \d+: (?P<reason>.*)", re.S),
)
_LOADING = re.compile(r"^loading: (?P<model>.+):\d+$")
_DONE = re.compile(r"^(?:successfully loaded|failed to load) '(?P<model>[^']+)'")
_USUAL = ("CudaDriverHelper has not been initialized.", "Internal: failed to load all models")
"""Errors that Triton logs on every machine without a GPU, or after it said the reasons."""

_STATUS = re.compile(r"^(?:Invalid argument|Internal|Unavailable|Not found|Unsupported): ")
_PYTHON = re.compile(
    r"\s*\n\s*\nAt:\n *(?P<file>[^\n]+)\((?P<line>\d+)\): (?P<function>\S+).*", re.S
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of the log. `level` is I, W, E or F."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Loading:
    """How far the loading of the models has come; names in the order of the log."""

    ready: tuple[str, ...]
    unfinished: tuple[str, ...]


def parse_log(log: str) -> Iterator[Entry]:
    """Messages in order. What protobuf says of a config joins the message that names its file."""
    places: list[str] = []
    for line in log.splitlines():
        if match := _PROTOBUF.match(line):
            places.append(match[1])
        elif match := _LINE.match(line):
            text = _unquoted(match[2])
            if places and _TEXT_PROTO.search(text):
                text = _TEXT_PROTO.sub(lambda m: f"{m[1]}:" + "; ".join(places), text)  # noqa: B023
            places = []
            yield Entry(match[1], text)


def find_failures(
    expected: Iterable[str], index: Iterable[ModelState], log: str
) -> Mapping[str, str]:
    """Models that should be served and are not, each with its reason.

    `expected` are the folders of the served tree. A model that was unloaded on purpose is fine.
    """
    states: dict[str, list[ModelState]] = {name: [] for name in expected}
    for state in index:
        states.setdefault(state.name, []).append(state)
    entries = list(parse_log(log))
    return {
        name: reason
        for name, rows in sorted(states.items())
        if (reason := _failure(name, rows, entries))
    }


def find_reason(model: str, log: str) -> str | None:
    """The last reason that the log gives for `model` not to load."""
    return _find_reason(model, list(parse_log(log)))


def find_loading(log: str) -> Loading:
    """Which models are loaded and which still loading, or loading when the server died."""
    ready: list[str] = []
    unfinished: list[str] = []
    for entry in parse_log(log):
        if match := _LOADING.match(entry.text):
            unfinished.append(match["model"])
        elif match := _DONE.match(entry.text):
            unfinished = [name for name in unfinished if name != match["model"]]
            if entry.text.startswith("successfully"):
                ready.append(match["model"])
    return Loading(tuple(dict.fromkeys(ready)), tuple(dict.fromkeys(unfinished)))


def last_words(log: str, count: int = 3) -> tuple[str, ...]:
    """The last errors, else what somebody other than Triton wrote: the loader, docker, Python."""
    grave = [e.text for e in parse_log(log) if e.level in "EF" and e.text not in _USUAL]
    foreign = [
        line
        for line in log.splitlines()
        if line.strip() and line[0] not in "|+" and not _LINE.match(line)
    ]
    return tuple((grave or foreign)[-count:])


def _failure(name: str, rows: list[ModelState], entries: list[Entry]) -> str | None:
    for row in rows:
        if row.state == "UNAVAILABLE" and row.reason not in ("", "unloaded"):
            return tidy(row.reason)
    if any(row.state for row in rows):
        return None
    return _find_reason(name, entries) or "Triton does not say why: see its log"


def _find_reason(model: str, entries: list[Entry]) -> str | None:
    """What a message says of this very model, else the last error that names it."""
    for entry in reversed(entries):
        for pattern in _FAILURES:
            if (match := pattern.match(entry.text)) and match["model"] == model:
                return tidy(match["reason"])
    named = re.compile(rf"(?<![\w.-]){re.escape(model)}(?![\w-])")
    for entry in reversed(entries):
        if entry.level == "E" and named.search(entry.text):
            return tidy(entry.text)
    return None


def tidy(reason: str) -> str:
    """On one line, without Triton's status words; a Python trace is cut to its innermost place."""
    reason = _STATUS.sub("", reason.strip())
    reason = _PYTHON.sub(r" (\g<file>, line \g<line>, in \g<function>)", reason)
    return " ".join(reason.split())


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) < 2 or not text.startswith('"') or not text.endswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]
