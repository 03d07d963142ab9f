"""Which requests go to the candidate of a model, and of which it gets a copy."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace

from mmctl.client.description import NO_CANDIDATE, Candidacy
from mmctl.inference import InferRequest
from mmctl.triton.repository import NEXT
from mmctl.wire import encode

ASK_AGAIN_S = 5.0


class Canaries:
    """What a client knows of the canaries of its server. Threads may share it.

    A share is in percent, 0 without a canary; it is asked for when a model is first called, and
    again after ASK_AGAIN_S. Equal keys go the same way, everywhere and always. What belongs to a
    sequence stays with the model that has its state.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Candidacy] = {}
        self._due: dict[str, float] = {}

    def asks(self, request: InferRequest) -> bool:
        """Whether the server must be asked for the share now; one of many threads is told so.
        A request for one version, or for a candidate itself, goes where it says.
        """
        if not _is_open(request):
            return False
        now = self._clock()
        if now < self._due.get(request.model, now):
            return False
        self._due[request.model] = now + ASK_AGAIN_S
        return True

    def learn(self, model: str, candidacy: Candidacy) -> None:
        """NO_CANDIDATE is that of a candidate which does not answer, too."""
        self._known[model] = candidacy

    def candidate_for(self, request: InferRequest, key: str | bytes) -> InferRequest | None:
        """The same request to the candidate, when it is one of its share; `key` may be empty."""
        return self.copy_of(request) if _is_of(self._of(request).share, request, key) else None

    def shadows(self, request: InferRequest, key: str | bytes) -> bool:
        """Whether the candidate gets a copy of it."""
        return _is_of(self._of(request).shadow, request, key)

    def _of(self, request: InferRequest) -> Candidacy:
        return self._known.get(request.model, NO_CANDIDATE)

    def copy_of(self, request: InferRequest) -> InferRequest:
        """The same request to the candidate."""
        return replace(request, model=request.model + NEXT)


def _is_of(share: float, request: InferRequest, key: str | bytes) -> bool:
    if not share or not _is_open(request):
        return False
    return part_of(key or request.request_id or content_of(request)) < share * 100


def _is_open(request: InferRequest) -> bool:
    """Whether it may go to a candidate at all."""
    return not (
        request.version or request.model.endswith(NEXT) or "sequence_id" in request.parameters
    )


def part_of(key: str | bytes) -> int:
    """0 to 9999, the same for a key in every process."""
    data = key.encode() if isinstance(key, str) else key
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest()) % 10_000


def content_of(request: InferRequest) -> bytes:
    """A digest of the inputs: their names, types, shapes and values."""
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(request.inputs.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(encode(array))
    return digest.digest()
