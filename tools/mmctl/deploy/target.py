"""The two seams of a deployment: the tree that a Triton reads, and that Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from mmctl.client.samples import Sample
from mmctl.client.status import Counts, IndexEntry
from mmctl.deploy.state import Files, ServerState, TreeState
from mmctl.tensors import Array


class Tree(Protocol):
    """A served tree and what is kept beside it. In a local folder or an object store.

    Nothing is ever half-written under its final name. Everything may be done twice. Raises
    WorldError when the disk or the network fails.
    """

    def alone(self, on_wait: Callable[[], None]) -> AbstractContextManager[None]:
        """One deployment at a time; calls `on_wait` once if another one is under way."""
        ...

    def read(self) -> TreeState: ...

    def source_of(self, model: str, version: int) -> str:
        """Where a version lies, in the tree or else beside it, for `copy`."""
        ...

    def plan_of(self, model: str, version: int) -> bytes | None:
        """The plan.json that lies there."""
        ...

    def copy(self, model: str, version: int, source: str) -> None:
        """Make a version folder like the one at `source`."""
        ...

    def drop(self, model: str, version: int) -> None:
        """Remove a version folder from the tree."""
        ...

    def forget(self, model: str, version: int) -> None:
        """Remove a version from the tree and from what is kept beside it."""
        ...

    def write(self, model: str, files: Files) -> None:
        """Write the files of a model, its config.pbtxt last; what else it has outside of version
        folders goes. Without any the folder goes too once it is empty.
        """
        ...

    def keep(self, model: str) -> None:
        """Take a model out of the tree; its versions lie beside it from then on."""
        ...

    def bring_back(self, model: str) -> None:
        """The reverse of `keep`, without the files."""
        ...

    def erase(self, model: str) -> None:
        """Remove a model and all its versions from the tree."""
        ...

    def tear(self, told: str) -> None:
        """Note that a deployment is under way: `read` says so until `mend`."""
        ...

    def mend(self) -> None: ...

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the ledger."""
        ...

    def ledger(self) -> Sequence[Mapping[str, Any]]:
        """All lines of the ledger, the oldest first."""
        ...


class Server(Protocol):
    """The Triton of a target. Raises InferenceError with Triton's reason when it refuses,
    WorldError when it does not answer.
    """

    @property
    def name(self) -> str:
        """By which messages tell it from other replicas."""
        ...

    @property
    def version(self) -> str:
        """Triton's own, `2.51.0`."""
        ...

    @property
    def run(self) -> str:
        """Names the process that counts, since it was started; "" where nobody knows: Triton says
        neither when it was started nor since when it counts.
        """
        ...

    @property
    def bls_threads(self) -> int | None:
        """How many calls a Python model of it may have under way; None where nobody knows."""
        ...

    def close(self) -> None: ...

    def index(self) -> tuple[IndexEntry, ...]: ...

    def load(self, model: str) -> None: ...

    def unload(self, model: str) -> None: ...

    def counts(self, model: str) -> Counts: ...

    def answer(self, model: str, sample: Sample) -> Mapping[str, Array]:
        """What a model, and no candidate of it, answers to a sample."""
        ...

    def differences(self, model: str, sample: Sample) -> list[str]:
        """Where the answer of a model to a golden request is not the recorded one."""
        ...

    def revive(self) -> bool:
        """Start it again where it has died and is ours; whether it was."""
        ...


def state_of(index: Iterable[IndexEntry]) -> ServerState:
    ready: dict[str, set[int]] = {}
    failed: dict[str, str] = {}
    for entry in index:
        if entry.state == "READY" and entry.version.isdecimal():
            ready.setdefault(entry.model, set()).add(int(entry.version))
        elif entry.state == "UNAVAILABLE" and entry.reason not in ("", "unloaded"):
            failed[entry.model] = entry.reason
    return ServerState({name: frozenset(found) for name, found in ready.items()}, failed)
