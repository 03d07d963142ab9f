"""Several Tritons behind one target, as one: what is asked of it is asked of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmctl.client.samples import Sample
from mmctl.client.status import Counts, IndexEntry
from mmctl.deploy.target import Server, state_of
from mmctl.tensors import Array


@dataclass(frozen=True, slots=True)
class Replicas:
    """Two or more. A model is ready where all have the same versions of it ready, and only there:
    a plan loads the others again, which to a replica that has it already is no work.
    """

    each: tuple[Server, ...]

    @property
    def name(self) -> str:
        return ", ".join(server.name for server in self.each)

    @property
    def version(self) -> str:
        """Of the first: who minds asks each."""
        return self.each[0].version

    @property
    def run(self) -> str:
        runs = [server.run for server in self.each]
        return " ".join(runs) if all(runs) else ""

    @property
    def bls_threads(self) -> int | None:
        known = [server.bls_threads for server in self.each]
        return None if None in known else min(count for count in known if count is not None)

    def close(self) -> None:
        for server in self.each:
            server.close()

    def index(self) -> tuple[IndexEntry, ...]:
        states = [state_of(server.index()) for server in self.each]
        found: list[IndexEntry] = []
        for name in sorted({name for state in states for name in (*state.ready, *state.failed)}):
            ready = [state.ready.get(name, frozenset()) for state in states]
            if all(versions == ready[0] for versions in ready) and ready[0]:
                found += (IndexEntry(name, str(version), "READY") for version in sorted(ready[0]))
                continue
            reasons = [
                f"{server.name}: {reason}"
                for server, state in zip(self.each, states, strict=True)
                if (reason := state.failed.get(name))
            ]
            found.append(IndexEntry(name, "", "UNAVAILABLE", "; ".join(reasons)))
        return tuple(found)

    def load(self, model: str) -> None:
        for server in self.each:
            server.load(model)

    def unload(self, model: str) -> None:
        for server in self.each:
            server.unload(model)

    def counts(self, model: str) -> Counts:
        counts = [server.counts(model) for server in self.each]
        return Counts(
            sum(c.requests for c in counts),
            sum(c.failed for c in counts),
            sum(c.total_ns for c in counts),
        )

    def answer(self, model: str, sample: Sample) -> Mapping[str, Array]:
        return self.each[0].answer(model, sample)

    def differences(self, model: str, sample: Sample) -> list[str]:
        return [found for server in self.each for found in server.differences(model, sample)]

    def revive(self) -> bool:
        revived = [server.revive() for server in self.each]
        return all(revived)


def replicas_of(server: Server) -> tuple[Server, ...]:
    """Those that it stands for; itself where it is one."""
    return server.each if isinstance(server, Replicas) else (server,)


def replicated(servers: Sequence[Server]) -> Server:
    """One server as it is, several as one."""
    return servers[0] if len(servers) == 1 else Replicas(tuple(servers))


def named(server: Server) -> Iterator[tuple[str, Server]]:
    """Each replica with its name, which is empty where there is only one."""
    replicas = replicas_of(server)
    for one in replicas:
        yield one.name if len(replicas) > 1 else "", one
