"""The way of a request through the levels: exact, normalised, semantic, the model, and back.

One for threads and tasks: it yields what it wants done outside (cache/effects.py, and what the
model's own steps want) and decides everything else.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from mmctl.cache.effects import Reply, Store, StoreDown
from mmctl.cache.envelope import MAX_BYTES, Entry, Vector, kept, seal, unseal
from mmctl.cache.flight import Flights, is_final, own_copy
from mmctl.cache.keys import Identity, normalised_key, partition_key
from mmctl.cache.lease import Leases, Sealed
from mmctl.cache.local import LocalStore, weight
from mmctl.cache.meaning import Meaning, Verdict, one_text
from mmctl.cache.settings import ModelCache
from mmctl.cache.statistics import Statistics
from mmctl.cache.stores import names
from mmctl.effects import Steps
from mmctl.errors import MmctlError
from mmctl.inference import CacheNote, InferRequest, InferResponse

Compute = Callable[[InferRequest], Steps[InferResponse]]
"""Asks the model."""

JITTER = 0.1
"""Answers live up to this share longer or shorter: what came together does not leave together."""

MAX_ERRORS = 1024
"""Errors that are remembered."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and all that decides which answers are its own.

    `key` is its exact key. `tenant` stands for who asks, `audience` for all who may get the same
    exact answer. `deadline` is a time of the monotonic clock, `began` one of the performance
    counter. `shares`: the epoch is known to be right, so that the shared store may be used.
    """

    identity: Identity
    request: InferRequest
    setting: ModelCache
    key: bytes
    tenant: str
    audience: str
    epoch: str
    began: float
    deadline: float | None = None
    shares: bool = False

    @property
    def model(self) -> str:
        return self.identity.model

    def owned(self) -> Asked:
        """With copies of the arrays: the caller may change its own while the model is asked, and
        the key is made already.
        """
        said = self.request
        request = InferRequest(  # written out: `replace` takes five times as long
            said.model,
            {name: array.copy() for name, array in said.inputs.items()},
            said.outputs,
            said.version,
            said.request_id,
            said.parameters,
            said.headers,
        )
        return Asked(
            self.identity,
            request,
            self.setting,
            self.key,
            self.tenant,
            self.audience,
            self.epoch,
            self.began,
            self.deadline,
            self.shares,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """An answer on its way to those who asked. `keep`: it is new and may be kept; then `size` is
    its weight.
    """

    entry: Entry
    note: CacheNote
    keep: bool = False
    size: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """What a semantic level was asked, and what it says."""

    meaning: Meaning
    partition: bytes
    text: str
    vector: Vector
    verdict: Verdict


Given = tuple[InferResponse, CacheNote]


class Lookup:
    """All levels of one process. For any number of threads, tasks and event loops."""

    def __init__(
        self,
        local: LocalStore,
        statistics: Statistics,
        *,
        leases: Leases | None = None,
        secret: bytes | None = None,
        max_entry_bytes: int = MAX_BYTES,
        meaning_of: Callable[[Asked], Meaning | None] = lambda asked: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`leases` are those of the shared store; without them answers stay in this process.
        `meaning_of` gives the semantic level of a request's model. `clock` gives Unix seconds.
        """
        self._local = local
        self._statistics = statistics
        self._leases = leases
        self._secret = secret
        self._max_entry_bytes = max_entry_bytes
        self._meaning_of = meaning_of
        self._clock = clock
        self._flights = Flights()
        self._errors = Errors(clock)

    def answer(self, asked: Asked, compute: Compute) -> Steps[Given]:
        """The answer and where it comes from. Raises what `compute` raises, and LateError when the
        deadline passes while another caller computes.
        """
        entry = self._local.get(asked.key)
        if entry is not None and entry.is_fresh(self._clock()):
            return self._hit(asked, self._found(entry, "exact"))
        if (error := self._errors.get(asked.key)) is not None:
            self._statistics.count(asked.model, "exact", lookups=1, negative=1)
            raise error
        owned = asked.owned()
        if entry is None:
            return (yield from self._joined(owned, compute))
        return (yield from self._refreshed(owned, compute, entry))

    def _joined(self, asked: Asked, compute: Compute, old: Entry | None = None) -> Steps[Given]:
        """With all who ask for the same now: one of them goes on, the others wait for it."""
        found, coalesced = yield from self._flights.one(
            asked.key,
            lambda: self._lead(asked, compute, old),
            deadline=asked.deadline,
            alone=lambda: self._beyond(asked, compute),
        )
        if coalesced:
            self._statistics.count(asked.model, "exact", lookups=1)
            self._statistics.count(asked.model, found.note.level, coalesced=1)
            return found.entry.response(), replace(found.note, coalesced=True)
        if found.note.level == "none":
            return found.entry.response(), found.note
        return self._hit(asked, found)

    def _refreshed(self, asked: Asked, compute: Compute, old: Entry) -> Steps[Given]:
        """One caller fetches a new answer; meanwhile, and when that fails, the others get `old`."""
        if not self._flights.under_way(asked.key):
            with suppress(MmctlError):
                return (yield from self._joined(asked, compute, old))
        return self._hit(asked, self._found(old, "exact", stale=True))

    def _lead(self, asked: Asked, compute: Compute, old: Entry | None) -> Steps[Found]:
        """Look further, for all who wait. With `old` there is no waiting for other processes."""
        entry = self._local.peek(asked.key)  # another may just have brought it
        if entry is not None and entry.is_fresh(self._clock()):
            return self._found(entry, "exact")
        try:
            if self._leases is None or not asked.shares:
                return (yield from self._beyond(asked, compute))
            found, _ = yield from self._leases.one(
                asked.key,
                lambda: self._beyond(asked, compute),
                seal=lambda found: self._sealed(found, asked.key),
                unseal=lambda raw: self._opened(asked, raw, asked.key, "exact", old is None),
                deadline=asked.deadline if old is None else time.monotonic(),
            )
        except Exception as error:
            if is_final(error):
                self._errors.put(asked.key, error, asked.setting.negative_s)
            raise
        return found

    def _beyond(self, asked: Asked, compute: Compute) -> Steps[Found]:
        """What the exact level does not have."""
        spelt = spelt_key(asked.setting, asked.audience, asked.identity, asked.request, asked.epoch)
        if spelt is not None and (found := (yield from self._spelt_alike(asked, spelt))):
            return found
        alike = yield from self._alike(asked)
        if alike is not None and (known := self._accepted(asked, alike)) is not None:
            return known
        found = yield from self._run(asked, compute)
        if alike is not None:
            found = self._learned(asked, alike, found)
        if found.keep:
            self._local.put(asked.key, found.entry, found.size)
            if spelt is not None:
                yield from self._fill_spelt(asked, spelt, found)
        return found

    def _spelt_alike(self, asked: Asked, key: bytes) -> Steps[Found | None]:
        """The normalised level."""
        entry = self._local.get(key)
        if entry is not None and entry.is_fresh(self._clock()):
            return self._found(entry, "normalised")
        found = None
        if self._leases is not None and asked.shares:
            with suppress(StoreDown):
                replies: list[Reply] = yield Store((("GET", names.entry(key)),))
                if replies[0] is not None:
                    found = self._opened(asked, replies[0], key, "normalised")
        if found is None:
            self._statistics.count(asked.model, "normalised", lookups=1)
        return found

    def _fill_spelt(self, asked: Asked, key: bytes, found: Found) -> Steps[None]:
        self._local.put(key, found.entry, found.size)
        if self._leases is not None and asked.shares:
            sealed = self._sealed(found, key)
            if sealed is not None:
                with suppress(StoreDown):
                    yield Store((("SET", names.entry(key), sealed.raw, "PX", sealed.ttl_ms),))

    def _alike(self, asked: Asked) -> Steps[_Alike | None]:
        """What the semantic level says; None where it has no say. A model that embeds and fails
        is no reason to fail.
        """
        if (semantic := asked.setting.semantic) is None:
            return None
        meaning, model, name = self._meaning_of(asked), asked.model, semantic.input
        if meaning is None or (text := one_text(asked.request, name)) is None:
            return None
        if not meaning.pays(*self._semantic_times(model)):
            return None
        began = time.perf_counter()
        try:
            embedded = yield from meaning.embed(text)
        except MmctlError:
            return None
        self._statistics.took(model, "semantic", "embed", _ms_since(began))
        partition = partition_key(
            asked.tenant, asked.identity, asked.request, name, embedded.space, asked.epoch
        )
        began = time.perf_counter()
        verdict = meaning.look(partition, text, embedded.vector)
        self._statistics.took(model, "semantic", "search", _ms_since(began))
        return _Alike(meaning, partition, text, embedded.vector, verdict)

    def _semantic_times(self, model: str) -> tuple[float, float]:
        """Of the model, and of embedding and search; in ms."""
        mean_ms = self._statistics.mean_ms
        cost_ms = mean_ms(model, "semantic", "embed") + mean_ms(model, "semantic", "search")
        return mean_ms(model, "none", "compute"), cost_ms

    def _accepted(self, asked: Asked, alike: _Alike) -> Found | None:
        verdict, entry = alike.verdict, alike.verdict.entry
        if entry is not None and verdict.accepted and entry.is_fresh(self._clock()):
            if not verdict.probe:
                age_s = entry.age_s(self._clock())
                return Found(entry, CacheNote("semantic", age_s, verdict.similarity, verdict.gate))
            self._statistics.count(asked.model, "semantic", probes=1)
        self._statistics.count(asked.model, "semantic", lookups=1)
        return None

    def _learned(self, asked: Asked, alike: _Alike, found: Found) -> Found:
        """The model has answered: the level learns from it, and keeps the answer."""
        agrees = alike.meaning.learn(alike.verdict, found.entry)
        if alike.verdict.probe and agrees is False:
            self._statistics.count(asked.model, "semantic", disagreements=1)
        if not found.keep:
            return found
        entry = replace(found.entry, vector=alike.vector)
        alike.meaning.store(alike.partition, alike.text, alike.vector, entry)
        return replace(found, entry=entry, size=weight(entry))

    def _run(self, asked: Asked, compute: Compute) -> Steps[Found]:
        """Ask the model."""
        began = time.perf_counter()
        response = yield from compute(asked.request)
        took_ms = _ms_since(began)
        entry = kept(
            response,
            created=self._clock(),
            ttl_s=jittered(asked.setting.ttl_s, asked.key),
            stale_s=asked.setting.stale_s,
            digest=asked.identity.digest,
            epoch=asked.epoch,
        )
        size = weight(entry)
        keep = size <= self._max_entry_bytes and _is_whole(asked, response)
        added_ms = (began - asked.began) * 1000
        self._statistics.ran(asked.model, took_ms, added_ms=added_ms, kept=keep)
        return Found(entry, CacheNote("none"), keep, size)

    def _sealed(self, found: Found, key: bytes) -> Sealed | None:
        """What the store keeps of it."""
        if not found.keep:
            return None
        raw = seal(found.entry, key, self._secret)
        lasts_s = found.entry.ttl_s + found.entry.stale_s
        return Sealed(raw, max(int(lasts_s * 1000), 1)) if len(raw) <= MAX_BYTES else None

    def _opened(
        self, asked: Asked, raw: bytes, key: bytes, level: str, takes_stale: bool = False
    ) -> Found | None:
        """What the store has, if it is an answer that may be given."""
        entry = unseal(raw, key, self._secret, on_bad=lambda _: self._unreadable(asked.model))
        now = self._clock()
        if entry is None or not (entry.is_alive(now) if takes_stale else entry.is_fresh(now)):
            return None
        self._local.put(key, entry)
        return self._found(entry, level, stale=not entry.is_fresh(now))

    def _unreadable(self, model: str) -> None:
        self._statistics.count(model, "exact", unreadable=1)

    def _found(self, entry: Entry, level: str, *, stale: bool = False) -> Found:
        return Found(entry, CacheNote(level, entry.age_s(self._clock()), stale=stale))

    def _hit(self, asked: Asked, found: Found) -> Given:
        saved_ms = self._statistics.mean_ms(asked.model, "none", "compute")
        saved_ms = max(0.0, saved_ms - _ms_since(asked.began))
        level = found.note.level
        if level != "exact":
            self._statistics.count(asked.model, "exact", lookups=1)
        self._statistics.count(
            asked.model, level, lookups=1, hits=1, saved_ms=saved_ms, stale=found.note.stale
        )
        return found.entry.response(), found.note


class Errors:
    """Errors that are given again for a moment: those that say that the request is wrong."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._errors: OrderedDict[bytes, tuple[Exception, float]] = OrderedDict()

    def get(self, key: bytes) -> Exception | None:
        """A copy, which may be raised."""
        if key not in self._errors:  # nearly always
            return None
        with self._lock:
            error, until = self._errors.get(key, (None, 0.0))
            if error is not None and self._clock() < until:
                return own_copy(error)
            self._errors.pop(key, None)
            return None

    def put(self, key: bytes, error: Exception, lasts_s: float) -> None:
        if lasts_s > 0:
            with self._lock:
                self._errors[key] = own_copy(error), self._clock() + lasts_s
                while len(self._errors) > MAX_ERRORS:
                    self._errors.popitem(last=False)


def jittered(ttl_s: float, key: bytes) -> float:
    """The same for a key everywhere."""
    return ttl_s * (1 + JITTER * (int.from_bytes(key[:4]) / 2**31 - 1))


def spelt_key(
    setting: ModelCache, audience: str, identity: Identity, request: InferRequest, epoch: str
) -> bytes | None:
    """The key of the normalised level, where the model has one."""
    text = setting.normalise
    if text is None or text not in request.inputs:
        return None
    return normalised_key(audience, identity, request, text, epoch)


def _is_whole(asked: Asked, response: InferResponse) -> bool:
    """Whether the version that was to answer did, with all that it was asked for."""
    return (
        response.version == asked.identity.version
        and bool(response.outputs)
        and all(name in response.outputs for name in asked.request.outputs)
        and asked.setting.ttl_s > 0
    )


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
