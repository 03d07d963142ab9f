"""Why a request is answered from a cache, or not: its keys part by part, and what the store holds.

Contents of inputs and texts of parameters show as digests: prompts are nobody else's to read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from mmctl.cache.cache import audience_of
from mmctl.cache.effects import Store, StoreDown
from mmctl.cache.envelope import unseal
from mmctl.cache.epochs import UNKNOWN, Epochs
from mmctl.cache.keys import (
    UNSHAPING_PARAMETERS,
    Identity,
    bypass_reason,
    exact_key,
    is_shaping,
    partition_key,
    tenant_token,
)
from mmctl.cache.lookup import spelt_key
from mmctl.cache.settings import CacheSettings, ModelCache
from mmctl.cache.stores import names
from mmctl.effects import Steps
from mmctl.inference import InferRequest
from mmctl.tensors import Array, dtype_of
from mmctl.wire import encode


@dataclass(frozen=True, slots=True)
class Held:
    """What the shared store has under a key. `state` is one of

    "fresh", "old" (it may be given while a new one is fetched), "nothing", "under way" (a process
    computes it now), "unreadable" and "unknown" (the store does not answer, or there is none).
    Times in seconds: since it was made, and until it is old.
    """

    state: str
    age_s: float | None = None
    left_s: float | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that decides which answers are a request's own. Keys and digests are hexadecimal."""

    model: str
    version: str
    digest: str
    """Of the content of the version and all that it calls; empty: known by its version alone."""
    audience: str
    """Who may get the same exact answer."""
    epoch: str
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    """Empty: all."""
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    bypass: str | None
    """Why no cache answers it; None when one may."""
    key: str
    held: Held
    normalised_key: str | None = None
    normalised_held: Held | None = None
    partition: str | None = None
    """What texts share that may be compared; None where the model has no semantic level, or what
    embeds is not known here.
    """


def explained(
    settings: CacheSettings,
    identity: Identity,
    request: InferRequest,
    *,
    tenant: str,
    now: float,
    secret: bytes | None = None,
    embedder: str = "",
) -> Steps[Explanation]:
    """`embedder` is its digest. Without a store that answers, what it holds is not known."""
    setting = settings.of(identity.model)
    reason = "the cache is off for this model" if setting is None else bypass_reason(request)
    setting = setting or ModelCache()
    own = tenant_token(tenant, secret)
    audience = audience_of(setting, own)
    epoch = yield from Epochs().of(identity.model)
    key = exact_key(audience, identity, request, epoch)
    spelt = spelt_key(setting, audience, identity, request, epoch)
    held = yield from _held([key, *filter(None, [spelt])], epoch, secret, now)
    return Explanation(
        model=identity.model,
        version=identity.version,
        digest=identity.digest,
        audience=audience,
        epoch=epoch,
        inputs={name: _tensor(array) for name, array in sorted(request.inputs.items())},
        outputs=tuple(sorted(request.outputs)),
        parameters={
            name: _value(value)
            for name, value in sorted(request.parameters.items())
            if name not in UNSHAPING_PARAMETERS
        },
        headers={
            name.lower(): _value(value)
            for name, value in sorted(request.headers.items())
            if is_shaping(name)
        },
        bypass=reason,
        key=key.hex(),
        held=held[0],
        normalised_key=spelt.hex() if spelt else None,
        normalised_held=held[1] if spelt else None,
        partition=_partition(setting, own, identity, request, embedder, epoch),
    )


def _partition(
    setting: ModelCache,
    tenant: str,
    identity: Identity,
    request: InferRequest,
    embedder: str,
    epoch: str,
) -> str | None:
    semantic = setting.semantic
    if semantic is None or not embedder or semantic.input not in request.inputs:
        return None
    return partition_key(tenant, identity, request, semantic.input, embedder, epoch).hex()


def _held(keys: list[bytes], epoch: str, secret: bytes | None, now: float) -> Steps[list[Held]]:
    if epoch == UNKNOWN:
        return [Held("unknown")] * len(keys)
    commands = [
        (word, name(key))
        for key in keys
        for word, name in (("GET", names.entry), ("EXISTS", names.lease))
    ]
    try:
        replies = yield Store(tuple(commands))
    except StoreDown:
        return [Held("unknown")] * len(keys)
    return [
        _state(raw, is_leased, key, secret, now)
        for key, raw, is_leased in zip(keys, replies[::2], replies[1::2], strict=True)
    ]


def _state(raw: bytes | None, is_leased: int, key: bytes, secret: bytes | None, now: float) -> Held:
    if raw is None:
        return Held("under way" if is_leased else "nothing")
    if (entry := unseal(raw, key, secret)) is None:
        return Held("unreadable", bytes=len(raw))
    state = "fresh" if entry.is_fresh(now) else "old" if entry.is_alive(now) else "nothing"
    age_s = entry.age_s(now)
    return Held(state, round(age_s, 3), round(max(entry.ttl_s - age_s, 0.0), 3), len(raw))


def _tensor(array: Array) -> str:
    """Type, shape and content, the last as a digest."""
    word = dtype_of(array.dtype).wire
    return f"{word} {list(array.shape)} sha256 {hashlib.sha256(encode(array)).hexdigest()[:16]}"


def _value(value: str | int | bool) -> str:
    if not isinstance(value, str):
        return repr(value)
    return f"text of {len(value)}, sha256 {hashlib.sha256(value.encode()).hexdigest()[:16]}"
