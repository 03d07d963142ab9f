"""A cache of answers, for any number of clients, threads and event loops of one process.

cache = Cache(tenant="shop", store="redis://127.0.0.1:6379/0")
with Client("127.0.0.1:8001", cache=cache) as client:
    answer = client.infer("tag", {"text": ["good"]})
"""

from __future__ import annotations

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
        if not tenant:
            raise InputError(
                "a cache needs a tenant: whose answers it keeps",
                hint='name it, as in Cache(tenant="shop")',
            )
        self.settings = settings or CacheSettings()
        self._tenant = tenant
        self._secret = secret or self.settings.secret()
        self._statistics = Statistics()
        self._make_meaning = meaning
        self._meanings: dict[str, Meaning | None] = {}
        self._local = LocalStore(self.settings.max_bytes, clock, self._evicted)
        address = store or self.settings.store
        self._store = SharedStore(address) if address else None
        self._async_store = AsyncSharedStore(self._store) if self._store else None
        self._leases = Leases(self._store) if self._store else None
        self._epochs = Epochs()
        self._seen: dict[str, str] = {}
        self._unproven: dict[str, bool] = {}
        self._cleared: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._name = f"{os.getpid()}-{uuid4().hex[:12]}"
        self._published = 0.0
        self._lookup = Lookup(
            self._local,
            self._statistics,
            leases=self._leases,
            secret=self._secret,
            max_entry_bytes=self.settings.max_entry_bytes,
            meaning_of=self._meaning_of,
            clock=clock,
        )

    @classmethod
    def of_workspace(cls, workspace: Workspace, *, tenant: str) -> Self:
        """As mmctl.yaml says under `cache`."""
        return cls(tenant=tenant, settings=read_settings(workspace))

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

        Raises what `compute` raises, and LateError when the deadline passes while another caller
        computes. An answer whose version is not the identity's is given and not kept.
        """
        began = time.perf_counter()
        setting = self.settings.of(identity.model)
        if setting is None or no_store or bypass_reason(request) is not None:
            self._statistics.count(identity.model, "bypass", lookups=1, bypass=1)
            response = yield from compute(request)
            return response, CacheNote("bypass")
        epoch = yield from self._epoch(identity)
        own = tenant_token(tenant or self._tenant, self._secret)
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
        gauges: Snapshot = {
            model: {"exact": {"bytes": float(size)}}
            for model, size in self._local.bytes_by_model().items()
        }
        for model, unproven in list(self._unproven.items()):
            levels = gauges.setdefault(model, {})
            levels.setdefault("exact", {})["unproven"] = float(unproven)
        for model, meaning in list(self._meanings.items()):
            if meaning is not None:
                gauges.setdefault(model, {})["semantic"] = dict(meaning.gauges())
        return self._statistics.snapshot(gauges)

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return prometheus(self.statistics())

    def clear(self, model: str | None = None) -> int:
        """Forget the answers of a model, or all, here and for all who share the store; gives how
        many this process held. Raises StoreDown where the store could not be told.
        """
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

    def _meaning_of(self, asked: Asked) -> Meaning | None:
        """The semantic level of a model, made when it is first asked for."""
        semantic, model = asked.setting.semantic, asked.model
        if self._make_meaning is None or semantic is None or semantic.policy == OFF:
            return None
        with self._lock:
            if model not in self._meanings:
                self._meanings[model] = self._make_meaning(model, semantic)
            return self._meanings[model]

    def _epoch(self, identity: Identity) -> Steps[str]:
        """Part of every key; moves with every deploy and `clear`."""
        model = identity.model
        self._unproven[model] = not identity.digest
        if self._store is None:
            return f"{self._cleared['']}.{self._cleared[model]}"
        epoch = yield from self._epochs.of(model)
        if self._seen.setdefault(model, epoch) != epoch:
            self._seen[model] = epoch
            self._local.drop(model)  # out of reach for good
        return epoch

    def _publish(self) -> Steps[None]:
        self._published = time.monotonic()
        with suppress(StoreDown):
            yield Store(telling(self._name, self.statistics(), time.time()))

    def _evicted(self, reason: str, entry: Entry) -> None:
        self._statistics.count(entry.model, "exact", **{f"evicted_{reason}": 1})
