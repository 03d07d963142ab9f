"""What a client asks a server about its models, thought out once: over gRPC or HTTP, in threads or
in asyncio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mmctl.client.description import NO_CANDIDATE, Candidacy, Description
from mmctl.client.messages import candidacy_of, description_of, latest
from mmctl.client.status import IndexEntry, NotFoundError, unknown_model
from mmctl.effects import Steps
from mmctl.errors import MmctlError, WorldError
from mmctl.triton.repository import NEXT

ASIDE_S = 2.0
"""A question beside the request must not hold it up for longer."""


class Questions(ABC):
    """A protocol says how four things are asked; the rest follows. `address` is host:port."""

    address: str

    @abstractmethod
    def config(self, model: str, version: str, timeout_s: float | None) -> Steps[Any]:
        """A ModelConfig message. Raises NotFoundError."""

    @abstractmethod
    def versions(self, model: str, timeout_s: float | None) -> Steps[Sequence[str]]:
        """Those that are ready."""

    @abstractmethod
    def index(self) -> Steps[tuple[IndexEntry, ...]]:
        """Every version of every model in the repository, loaded or not."""

    @abstractmethod
    def loaded(self) -> Steps[tuple[IndexEntry, ...]]:
        """The versions that are loaded, from their statistics."""

    def describe(
        self, model: str, version: str, *, identify: bool, timeout_s: float | None
    ) -> Steps[Description]:
        config = yield from self.known_config(model, version, timeout_s)
        told = description_of(config, version)
        if identify and not told.identity.version:
            versions = yield from self.versions(model, timeout_s)
            told = description_of(config, latest(versions))
        return told

    def known_config(
        self, model: str, version: str = "", timeout_s: float | None = None
    ) -> Steps[Any]:
        """A ModelConfig message. Raises InputError, with the nearest name, where there is none."""
        try:
            return (yield from self.config(model, version, timeout_s))
        except NotFoundError as error:
            raise (yield from self._explained(error, model, version)) from error

    def candidate(self, model: str) -> Steps[Candidacy]:
        try:
            config = yield from self.config(model + NEXT, "", ASIDE_S)
        except WorldError:
            return NO_CANDIDATE
        return candidacy_of(config)

    def _explained(self, error: MmctlError, model: str, version: str) -> Steps[MmctlError]:
        # The index may be closed to us. Where statistics are as well, Triton's own words must do.
        for list_models, only_loaded in ((self.index, False), (self.loaded, True)):
            with suppress(WorldError):
                index = yield from list_models()
                return unknown_model(model, version, self.address, index, only_loaded=only_loaded)
        return error
