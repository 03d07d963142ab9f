"""A served tree in an object store, and what mmctl keeps beside it.

For a tree at `bucket/models` these are `models.kept/`, `models.ledger.jsonl`, `models.deploying`,
`models.lock` and `models.half/`. A store renames nothing, so a version folder that is being written
or removed is named in `half` meanwhile and counts as absent; Triton takes no notice of it before
config.pbtxt names its version, and that is one object, written last.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmctl.deploy.ledger import keys_of
from mmctl.deploy.state import PLAN, Files, Held, HeldModel, TreeState, is_plan
from mmctl.deploy.store import Store, Stored
from mmctl.deploy.tree import VERSION, entries_of, files_of, held_of, is_name
from mmctl.errors import Refused, WorldError
from mmctl.files import digest_of, exclusive, is_inside, write_text
from mmctl.triton.repository import CONFIG, MANIFEST

Listing = Mapping[str, Stored]
"""Objects by path inside a folder."""

FOLDER = ".mmctl"
"""An empty object that makes the folder of a tree without models."""
POLL_S = 0.1
WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class ObjectTree:
    """The tree in the folder `root` of a store. With the file `turn` a workspace waits for itself
    and knows its own lock again; for the lock of another it waits `wait_s`.
    """

    store: Store
    root: str
    turn: Path
    wait_s: float = WAIT_S

    @property
    def kept(self) -> str:
        return f"{self.root}.kept"

    @property
    def half(self) -> str:
        return f"{self.root}.half"

    @property
    def torn(self) -> str:
        return f"{self.root}.deploying"

    @property
    def lock(self) -> str:
        return f"{self.root}.lock"

    @property
    def lines(self) -> str:
        return f"{self.root}.ledger.jsonl"

    @contextmanager
    def alone(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Holds an object that the store lets only one create. One that a killed process of this
        workspace has left is taken over. Raises Refused when another workspace keeps its own.
        """
        with exclusive(self.turn, on_wait):
            own = self._take(on_wait)
            try:
                # To Triton a folder without objects does not exist, and it will not start on it.
                self.store.create(f"{self.root}/{FOLDER}", b"")
                yield
            finally:
                # Where the store is gone the lock stays, and is known for our own the next time.
                with suppress(WorldError):
                    self._let_go(own)

    def read(self) -> TreeState:
        keys = keys_of(self.ledger())
        half = set(self.store.list(self.half))
        shelves = {place: _by_model(self.store.list(place)) for place in (self.kept, self.root)}
        texts = self.store.read_all(
            f"{place}/{name}/{path}"
            for place, models in shelves.items()
            for name, files in models.items()
            for path in (*_manifests(files), *(_changeable(files) if place == self.root else ()))
        )
        found: dict[str, dict[int, Held]] = {}
        for place, models in shelves.items():
            for name, files in models.items():
                for version, own in _versions(files).items():
                    folder = f"{place}/{name}/{version}"
                    if self._mark(folder) not in half:
                        known = keys.get(name, {}).get(version, "")
                        held = self._held(folder, own, texts, known)
                        found.setdefault(name, {})[version] = held
        settings = {
            name: {
                path: texts[place]
                for path in _changeable(files)
                if (place := f"{self.root}/{name}/{path}") in texts
            }
            for name, files in shelves[self.root].items()
        }
        names = sorted({*found, *(name for name, files in settings.items() if files)})
        read = {name: HeldModel(found.get(name, {}), settings.get(name, {})) for name in names}
        return TreeState(read, keys, self.store.read(self.torn) is not None)

    def source_of(self, model: str, version: int) -> str:
        return self.store.url(self._folder(model, version))

    def plan_of(self, model: str, version: int) -> bytes | None:
        return self.store.read(f"{self._folder(model, version)}/{PLAN}")

    def copy(self, model: str, version: int, source: str) -> None:
        final = f"{self.root}/{model}/{version}"
        if self._has(final):
            return
        inside = self.store.path_of(source)
        if inside is not None:
            self._copy(inside, final)
            return
        origin = Path(source)
        files = {f"{final}/{f.relative_to(origin).as_posix()}": f for f in files_of(origin)}
        with self._unfinished(final):
            self._clear(final)
            self.store.upload(files)

    def drop(self, model: str, version: int) -> None:
        self._remove(f"{self.root}/{model}/{version}")

    def forget(self, model: str, version: int) -> None:
        self.drop(model, version)
        self._remove(f"{self.kept}/{model}/{version}")

    def write(self, model: str, files: Files) -> None:
        """Of all that it writes Triton sees the config.pbtxt first."""
        folder = f"{self.root}/{model}"
        there = self.store.list(folder)
        strays = [f"{folder}/{path}" for path in _settings(there) if path not in files]
        if CONFIG not in files:
            self.store.delete([f"{folder}/{CONFIG}"])
        known = self.store.read_all(f"{folder}/{path}" for path in files if path in there)
        places = {path.rpartition("/")[0] for path in there}
        new = [
            path
            for path, content in files.items()
            if known.get(f"{folder}/{path}") != content
            and (not is_plan(path) or path.rpartition("/")[0] in places)
        ]
        for path in new:
            if path != CONFIG:
                self.store.write(f"{folder}/{path}", files[path])
        if CONFIG in files and (new or strays):
            if CONFIG in there:
                self._await_second_after(max(stored.second for stored in there.values()))
            self.store.write(f"{folder}/{CONFIG}", files[CONFIG])
        self.store.delete(strays)

    def keep(self, model: str) -> None:
        folder = f"{self.root}/{model}"
        there = self.store.list(folder)
        self.store.delete([f"{folder}/{CONFIG}"])
        self._move(_versions(there), folder, f"{self.kept}/{model}")
        self._clear(folder)

    def bring_back(self, model: str) -> None:
        kept = f"{self.kept}/{model}"
        self._move(_versions(self.store.list(kept)), kept, f"{self.root}/{model}")

    def erase(self, model: str) -> None:
        folder = f"{self.root}/{model}"
        self.store.delete([f"{folder}/{CONFIG}"])
        for version in _versions(self.store.list(folder)):
            self._remove(f"{folder}/{version}")
        self._clear(folder)

    def tear(self, told: str) -> None:
        """Clears away what an earlier deployment that was killed has half written, too."""
        for mark in self.store.list(self.half):
            self._clear(f"{self._beside}/{mark}")
            self.store.delete([f"{self.half}/{mark}"])
        self.store.write(self.torn, f"{told}\n".encode())

    def mend(self) -> None:
        self.store.delete([self.torn])

    def log(self, entry: Mapping[str, Any]) -> None:
        """Reads and writes all of it, so only whoever is `alone` may."""
        line = json.dumps(entry, ensure_ascii=False, sort_keys=True) + "\n"
        self.store.write(self.lines, (self.store.read(self.lines) or b"") + line.encode())

    def ledger(self) -> Sequence[Mapping[str, Any]]:
        return entries_of((self.store.read(self.lines) or b"").decode(errors="replace"))

    @property
    def _beside(self) -> str:
        return self.root.rpartition("/")[0]

    def _mark(self, folder: str) -> str:
        """The name in `half` of a folder in the tree or in `kept`."""
        return folder.removeprefix(f"{self._beside}/")

    @contextmanager
    def _unfinished(self, folder: str) -> Iterator[None]:
        """The folder counts as absent until the block has succeeded."""
        mark = f"{self.half}/{self._mark(folder)}"
        self.store.write(mark, b"")
        yield
        self.store.delete([mark])

    def _has(self, folder: str) -> bool:
        mark = f"{self.half}/{self._mark(folder)}"
        return bool(self.store.list(folder)) and self.store.read(mark) is None

    def _folder(self, model: str, version: int) -> str:
        inside = f"{self.root}/{model}/{version}"
        return inside if self._has(inside) else f"{self.kept}/{model}/{version}"

    def _copy(self, source: str, final: str) -> None:
        with self._unfinished(final):
            self._clear(final)
            self.store.copy({f"{source}/{p}": f"{final}/{p}" for p in self.store.list(source)})

    def _move(self, versions: Iterable[int], source: str, final: str) -> None:
        for version in versions:
            if self._has(f"{source}/{version}"):
                if not self._has(f"{final}/{version}"):
                    self._copy(f"{source}/{version}", f"{final}/{version}")
                self._remove(f"{source}/{version}")

    def _remove(self, folder: str) -> None:
        if self.store.list(folder):
            with self._unfinished(folder):
                self._clear(folder)

    def _clear(self, folder: str) -> None:
        self.store.delete(f"{folder}/{path}" for path in self.store.list(folder))

    def _held(self, folder: str, files: Listing, texts: Mapping[str, bytes], known: str) -> Held:
        """The ledger says the key of what mmctl did not make, where it was deployed: its content
        would have to come over the network each time.
        """

        def key() -> str:
            return known or digest_of({p: self.store.sha256(f"{folder}/{p}") for p in files})

        return held_of(
            texts.get(f"{folder}/{MANIFEST}", b""),
            {path.partition("/")[0] for path in files},
            sum(stored.bytes for stored in files.values()),
            key,
            kept=folder.startswith(f"{self.kept}/"),
        )

    def _await_second_after(self, second: int) -> None:
        """Triton takes a model for unchanged whose newest object is of the second that it knows."""
        clock = f"{self.root}.clock"
        self.store.write(clock, b"")
        while self.store.second(clock) <= second:
            time.sleep(POLL_S)
            self.store.write(clock, b"")
        self.store.delete([clock])

    def _take(self, on_wait: Callable[[], None]) -> bytes:
        token = self.turn.with_suffix(".token")
        left = token.read_bytes() if token.is_file() else b""
        if left and self.store.read(self.lock) == left:
            self.store.delete([self.lock])
        values = {
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "token": secrets.token_hex(8),
        }
        own = json.dumps(values)
        write_text(token, own)  # first: it must be known for ours as soon as it is there
        if not self._create_lock(own.encode()):
            on_wait()
            deadline = time.monotonic() + self.wait_s
            while not self._create_lock(own.encode()):
                if time.monotonic() >= deadline:
                    raise self._taken()
                time.sleep(POLL_S)
        return own.encode()

    def _create_lock(self, own: bytes) -> bool:
        """Whether it is ours. Asked first: a store that knows no conditional writes overwrites, and
        a request that was sent twice may have succeeded the first time.
        """
        there = self.store.read(self.lock)
        return there == own or (there is None and self.store.create(self.lock, own))

    def _let_go(self, own: bytes) -> None:
        if self.store.read(self.lock) == own:
            self.store.delete([self.lock])

    def _taken(self) -> Refused:
        other: Any = {}
        with suppress(ValueError):
            other = json.loads(self.store.read(self.lock) or b"")
        return Refused(
            f"{self.store.url(self.lock)}: {other.get('host', 'somebody')} deploys to it since "
            f"{other.get('since', 'some time')}",
            hint="wait for it; if it is not there any more, remove this object",
        )


def _by_model(listing: Listing) -> dict[str, dict[str, Stored]]:
    """Python's caches and what could not be a file of a model are left out: a store takes any text
    for a name.
    """
    found: dict[str, dict[str, Stored]] = {}
    for path, stored in listing.items():
        name, _, rest = path.partition("/")
        if is_name(name) and is_inside(path) and rest and "__pycache__" not in rest.split("/"):
            found.setdefault(name, {})[rest] = stored
    return found


def _versions(files: Listing) -> dict[int, dict[str, Stored]]:
    found: dict[int, dict[str, Stored]] = {}
    for path, stored in files.items():
        first, _, rest = path.partition("/")
        if rest and VERSION.fullmatch(first):
            found.setdefault(int(first), {})[rest] = stored
    return found


def _manifests(files: Listing) -> list[str]:
    return [path for path in files if _is_of_version(path, MANIFEST)]


def _changeable(files: Listing) -> list[str]:
    """What of a model may change while its versions stay; nothing without a config.pbtxt."""
    if CONFIG not in files:
        return []
    return sorted((*_settings(files), *(path for path in files if _is_of_version(path, PLAN))))


def _is_of_version(path: str, name: str) -> bool:
    first, _, rest = path.partition("/")
    return rest == name and VERSION.fullmatch(first) is not None


def _settings(files: Listing) -> list[str]:
    """Objects of a model outside of its version folders, hidden ones left out."""
    firsts = {path: path.partition("/")[0] for path in files}
    return [
        path
        for path, first in firsts.items()
        if not first.startswith(".") and not (VERSION.fullmatch(first) and first != path)
    ]
