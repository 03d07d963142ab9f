"""What semantic levels have learned, as processes tell each other by a shared store: a process that
begins need not learn anew what others know, and what was learned outlives them all.

Numbers only, no texts and no answers: JSON, then its SHA-256, or HMAC with a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mmctl.cache.effects import Reply, Store, StoreDown
from mmctl.cache.meaning import Meaning
from mmctl.effects import Steps

LASTS_S = 30 * 86400
MAX_BYTES = 4 * 1024 * 1024
"""Of all that a level has learned; it remembers a few thousand answers at most."""

_SEAL_BYTES = 32


def exchange(meaning: Meaning, name: str, secret: bytes | None) -> Steps[None]:
    """Take what lies under `name` where that is more than the level knows, else leave there what
    the level knows. A store that is down is asked another time.
    """
    with suppress(StoreDown):
        replies: list[Reply] = yield Store((("GET", name),))
        mine = meaning.exchange(opened(replies[0], name, secret))
        if mine is not None:
            yield Store((("SET", name, sealed(mine, name, secret), "EX", LASTS_S),))


def sealed(learned: Mapping[str, Any], name: str, secret: bytes | None) -> bytes:
    told = json.dumps(learned).encode()
    return told + _seal_of(told, name, secret)


def opened(raw: Reply, name: str, secret: bytes | None) -> dict[str, Any] | None:
    """None for what is not there, is damaged, or was sealed with another secret or name."""
    if not isinstance(raw, bytes) or not _SEAL_BYTES < len(raw) <= MAX_BYTES:
        return None
    told, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    if not hmac.compare_digest(_seal_of(told, name, secret), seal):
        return None
    try:
        learned = json.loads(told)
    except (ValueError, RecursionError):
        return None
    return learned if isinstance(learned, dict) else None


def _seal_of(told: bytes, name: str, secret: bytes | None) -> bytes:
    body = len(name).to_bytes(4) + name.encode() + told
    if secret is None:
        return hashlib.sha256(body).digest()
    return hmac.digest(secret, body, "sha256")
