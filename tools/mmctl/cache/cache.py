"""A cache of answers, for any number of clients, threads and event loops of one process.

cache = Cache(tenant="shop", store="redis://127.0.0.1:6379/0")
with Client("127.0.0.1:8001", cache=cache) as client:
    answer = client.infer("tag", {"text": ["good"]})
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Self
from uuid import uuid4

from mmctl.cache.counters import telling
from mmctl.cache.effects import Store, StoreDown, async_performers, performers
from mmctl.cache.envelope import Entry
from mmctl.cache.epochs import Epochs, moved
from mmctl.cache.keys import Identity, bypass_reason, exact_key, tenant_token
from mmctl.cache.lease import Leases
from mmctl.cache.local import LocalStore
from mmctl.cache.lookup import Asked, Compute, Given, Lookup
from mmctl.cache.meaning import MakeMeaning, Meaning
from mmctl.cache.semantic.levels import FOLDER, Levels
from mmctl.cache.settings import OFF, CacheSettings, ModelCache, read_settings
from mmctl.cache.statistics import Snapshot, Statistics, prometheus
from mmctl.cache.stores.redis import AsyncSharedStore, SharedStore
from mmctl.effects import Steps
from mmctl.errors import InputError
from mmctl.inference import CacheNote, InferRequest
from mmctl.workspace import Workspace

PUBLISH_S = 5.0
"""So often a process tells the store what it has counted."""

SHARED = "shared"
"""The audience of a model whose exact answers all tenants may get."""


def audience_of(setting: ModelCache, tenant: str) -> str:
    """Who may get a tenant's exact answers: that is part of their keys."""
    return SHARED if setting.shared else f"tenant {tenant}"


def _named(tenant: str) -> str:
    """Raises InputError for a tenant without a name: it is nobody's, and no default."""
    if not tenant:
        raise InputError(
            "a cache needs a tenant: whose answers it keeps",
            hint='name it, as in Cache(tenant="shop")',
        )
    return tenant


def _tell_down(error: StoreDown) -> None:
    """No request fails for it, so nobody would know."""
    logging.getLogger(__name__).warning("%s; %s", error, error.hint)


class Cache:
    """Answers that are given again: exactly, by spelling, by meaning, as `settings` say.

    `tenant` is whose answers these are, unless a request names another: tenants never get each
    other's, but those of models that are set `shared`. `store` is the address of a Redis or Valkey
    that processes share, and `secret` seals what lies there; both may stand in `settings`.
    """

    def __init__(
        self,
        *,
        tenant: str,
        settings: CacheSettings | None = None,
        store: str | None = None,
        secret: bytes | None = None,
        meaning: MakeMeaning | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`meaning` makes the semantic level of a model; `clock` gives Unix seconds. Raises
        InputError for a tenant without a name, an address that is none, and a secret that is
        named and not set.
        """
        self.settings = settings or CacheSettings()
        self._tenant = _named(tenant)
        self._secret = secret or self.settings.secret()
        self._clock = clock
        self._given_meaning = meaning
        address = store or self.settings.store
        self._store = SharedStore(address, on_down=_tell_down) if address else None
        self._async_store = AsyncSharedStore(self._store) if self._store else None
        self._leases = Leases(self._store) if self._store else None
        self._begin()

    def _begin(self) -> None:
        """With nothing: a process that was forked from another may have its locks half taken, and
        must not count once more what that one has counted. What asks the store knows of forks.
        """
        settings, clock = self.settings, self._clock
        self._pid = os.getpid()
        self._statistics = Statistics()
        self._make_meaning = self._given_meaning or Levels(settings.semantic_entries, clock=clock)
        self._meanings: dict[tuple[str, str], tuple[str, Meaning | None]] = {}
        self._local = LocalStore(settings.max_bytes, clock, self._evicted)
        self._epochs = Epochs()
        self._seen: dict[str, str] = {}
        self._unproven: dict[str, bool] = {}
        self._digests: dict[tuple[str, str], str] = {}
        self._untold: set[str] = set()
        self._cleared: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._name = f"{os.getpid()}-{uuid4().hex[:12]}"
        self._published = 0.0
        self._lookup = Lookup(
            self._local,
            self._statistics,
            leases=self._leases,
            secret=self._secret,
            max_entry_bytes=settings.max_entry_bytes,
            meaning_of=self._meaning_of,
            clock=clock,
        )

    @classmethod
    def of_workspace(cls, workspace: Workspace, *, tenant: str) -> Self:
        """As mmctl.yaml says under `cache`, with what `mmctl cache calibrate` has learned."""
        settings = read_settings(workspace)
        levels = Levels(settings.semantic_entries, folder=workspace.state / FOLDER)
        return cls(tenant=tenant, settings=settings, meaning=levels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def steps(
        self,
        identity: Identity,
        request: InferRequest,
        compute: Compute,
        *,
        tenant: str | None = None,
        no_store: bool = False,
        deadline: float | None = None,
    ) -> Steps[Given]:
        """The answer and where it comes from; `compute` asks the model. `deadline` is a time of
        the monotonic clock.

        Raises what `compute` raises, LateError when the deadline passes while another caller
        computes, and InputError for a tenant without a name. An answer whose version is not the
        identity's is given and not kept.
        """
        began = time.perf_counter()
        self._notice_fork()
        setting = self.settings.of(identity.model)
        if setting is None or no_store or bypass_reason(request) is not None:
            self._statistics.count(identity.model, "bypass", lookups=1, bypass=1)
            response = yield from compute(request)
            return response, CacheNote("bypass")
        epoch = yield from self._epoch(identity)
        own = tenant_token(_named(self._tenant if tenant is None else tenant), self._secret)
        audience = audience_of(setting, own)
        key = exact_key(audience, identity, request, epoch)
        shares = self._store is not None and self._epochs.fresh(identity.model)
        asked = Asked(
            identity, request, setting, key, own, audience, epoch, began, deadline, shares
        )
        given = yield from self._lookup.answer(asked, compute)
        if self._store is not None and time.monotonic() - self._published > PUBLISH_S:
            yield from self._publish()
        return given

    @property
    def performers(self) -> Mapping[type, Callable[[Any], Any]]:
        """How a thread does what `steps` want, by the type of the effect."""
        return performers(self._store)

    @property
    def async_performers(self) -> Mapping[type, Callable[[Any], Awaitable[Any]]]:
        """How a task does it."""
        return async_performers(self._async_store)

    def statistics(self) -> Snapshot:
        """What this process has counted, by model and level."""
        self._notice_fork()
        gauges: Snapshot = {
            model: {"exact": {"bytes": float(size)}}
            for model, size in self._local.bytes_by_model().items()
        }
        for model, unproven in list(self._unproven.items()):
            levels = gauges.setdefault(model, {})
            levels.setdefault("exact", {})["unproven"] = float(unproven)
        for (model, _), (_, meaning) in list(self._meanings.items()):
            if meaning is not None:
                gauges.setdefault(model, {}).setdefault("semantic", {}).update(meaning.gauges())
        return self._statistics.snapshot(gauges)

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return prometheus(self.statistics())

    def clear(self, model: str | None = None) -> int:
        """Forget the answers of a model, or all, here and for all who share the store; gives how
        many this process held. Raises StoreDown where the store could not be told.
        """
        self._notice_fork()
        with self._lock:
            self._cleared[model or ""] += 1
        count = self._local.drop(model)
        if self._store is not None:
            self._store.run(*moved([model or ""], time.time()))
            self._epochs.forget(model or "")
        return count

    def close(self) -> None:
        """Tell the store what was counted, and let go of it. Answers of this process stay."""
        if self._store is not None:
            with suppress(StoreDown):
                self._store.run(*telling(self._name, self.statistics(), time.time()))
        if self._leases is not None:
            self._leases.close()
        if self._async_store is not None:
            self._async_store.close()
        if self._store is not None:
            self._store.close()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def _meaning_of(self, asked: Asked) -> Meaning | None:
        """The semantic level of a model, made when it is first asked for. With other content a
        model is another one: what was learned of it holds no more.
        """
        semantic, identity = asked.setting.semantic, asked.identity
        if semantic is None or semantic.policy == OFF:
            return None
        place = identity.model, identity.version
        with self._lock:
            known = self._meanings.get(place)
            if known is None or known[0] != identity.digest:
                known = identity.digest, self._make_meaning(identity, semantic)
                self._meanings[place] = known
        return known[1]

    def _epoch(self, identity: Identity) -> Steps[str]:
        """Part of every key; moves with every deploy and `clear`."""
        model, version = identity.model, identity.version
        self._unproven[model] = not identity.digest
        known = self._digests.get((model, version))
        if known != identity.digest:
            self._digests[model, version] = identity.digest
            if known is not None:
                self._exchanged(model)
        if model in self._untold:
            yield from self._tell_exchanged(model)
        if self._store is None:
            return f"{self._cleared['']}.{self._cleared[model]}"
        epoch = yield from self._epochs.of(model)
        if self._seen.setdefault(model, epoch) != epoch:
            self._seen[model] = epoch
            self._local.drop(model)  # out of reach for good
        return epoch

    def _exchanged(self, model: str) -> None:
        """A version has other content than before. What it said before anybody saw that lies under
        the older digest, and must not be found when that comes back.
        """
        with self._lock:
            self._cleared[model] += 1
        self._local.drop(model)
        if self._store is not None:
            self._untold.add(model)

    def _tell_exchanged(self, model: str) -> Steps[None]:
        with suppress(StoreDown):
            yield Store(moved([model], time.time()))
            self._untold.discard(model)
            self._epochs.forget(model)

    def _publish(self) -> Steps[None]:
        self._published = time.monotonic()
        with suppress(StoreDown):
            yield Store(telling(self._name, self.statistics(), time.time()))

    def _evicted(self, reason: str, entry: Entry) -> None:
        self._statistics.count(entry.model, "exact", **{f"evicted_{reason}": 1})
