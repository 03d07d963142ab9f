"""Where a server's own files are: its log, and what tells other commands of it."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import InputError
from mmctl.files import writing_to
from mmctl.server.info import log_path, read_server

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Place:
    """What is served and where the server's own files are. `state` is None for a private one."""

    served: Path
    log: Path
    state: Path | None
    target: str


def refuse_second(state: Path, target: str) -> None:
    """Raises InputError when a server of the target runs: one target, one server."""
    if running := read_server(state, target):
        raise InputError(
            f"the server of `{target}` already runs (http {running.http})",
            hint="use it, or end it with `mmctl stop`",
        )


def make_place(served: Path, state: Path, target: str, private: bool) -> Place:
    """Room for a new server; the log of the one before it is kept as `.1`.

    Raises InputError when the target has a server already, WorldError when the disk fails.
    """
    if not served.is_dir():
        raise InputError(f"{served}: there is no such folder to serve")
    name = f"private-{os.getpid()}-{next(_numbers)}" if private else target
    if not private:
        refuse_second(state, target)
    log = log_path(state, name)
    with writing_to(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        _forget_private_logs(log.parent)
        if log.exists():
            os.replace(log, log.with_name(f"{log.name}.1"))
    return Place(served.resolve(), log, None if private else state, target)


def model_folders(served: Path) -> tuple[str, ...]:
    """The models that Triton will find in a tree."""
    return tuple(
        folder.name
        for folder in sorted(served.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    )


def models_with_warm_up(served: Path) -> tuple[str, ...]:
    return tuple(
        name
        for name in model_folders(served)
        if any(
            "model_warmup" in config.read_text(errors="replace")
            for config in _configs(served / name)
        )
    )


def calls_at_once(served: Path) -> int:
    """Calls that one instance of a pipeline in the bls form may have under way, the most of all
    plans in a tree; 0 without any.
    """
    found = [0]
    for path in served.glob("*/*/plan.json"):
        with suppress(OSError):
            found.append(calls_at_once_of(path.read_bytes()))
    return max(found)


def calls_at_once_of(plan: bytes) -> int:
    """The same of the text of one plan.json."""
    # What cannot be read is the user's own, and whatever it is, no plan of ours.
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return int(sum(node.get("max_in_flight", 0) for node in json.loads(plan)["nodes"]))
    return 0


def _configs(model: Path) -> list[Path]:
    return [*model.glob("config.pbtxt"), *model.glob("configs/*.pbtxt")]


def _forget_private_logs(folder: Path) -> None:
    """Private servers leave their log behind when something went wrong, until the next starts."""
    for log in folder.glob("private-*.log"):
        if not Path(f"/proc/{log.name.split('-')[1]}").exists():
            log.unlink(missing_ok=True)
