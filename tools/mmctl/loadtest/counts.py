"""What a server counts of its models while something is measured."""

from __future__ import annotations

from mmctl.client.statistics import ModelStatistics, between
from mmctl.client.transport import GrpcTransport
from mmctl.errors import WorldError


class Counts:
    """Of one server, from `begin` on."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport
        self._before: tuple[ModelStatistics, ...] | None = None

    def begin(self) -> None:
        self._before = self._look()

    def since(self) -> tuple[ModelStatistics, ...]:
        """Nothing of a server that does not say, or does no more."""
        if self._before is None or (after := self._look()) is None:
            return ()
        return between(self._before, after)

    def _look(self) -> tuple[ModelStatistics, ...] | None:
        try:
            return self._transport.statistics()
        except WorldError:
            return None
