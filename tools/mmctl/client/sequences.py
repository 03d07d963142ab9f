"""Requests to a model that keeps state between them: what Triton must be told with each."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace

from mmctl.client.core import Call, Core
from mmctl.effects import Steps
from mmctl.errors import MmctlError
from mmctl.inference import InferResult


class Progress:
    """How far a sequence is: it begins with the first request that is answered, and may begin anew
    after its last. Its `id` is one that no other client has.
    """

    def __init__(self, core: Core, sequence_id: int | None = None) -> None:
        self.id = sequence_id or secrets.randbelow(2**63 - 1) + 1
        self._core = core
        self._latest: Call | None = None

    def sent(self, call: Call, *, last: bool) -> Steps[InferResult]:
        """The answer to its next request, with `last` the final one."""
        flags = {
            "sequence_id": self.id,
            "sequence_start": self._latest is None,
            "sequence_end": last,
        }
        result = yield from self._core.infer(replace(call, parameters={**call.parameters, **flags}))
        self._latest = None if last else call
        return result

    def ended(self) -> Steps[None]:
        """Frees its place at the server: where no request was the last, the latest one is sent once
        more as that, and its answer dropped. Errors are, too: Triton ends idle sequences.
        """
        if self._latest is not None:
            with suppress(MmctlError):
                yield from self.sent(self._latest, last=True)
