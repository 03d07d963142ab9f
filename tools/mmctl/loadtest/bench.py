"""A load test from its profile to what it has found."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmctl.client.prepared import Prepared
from mmctl.client.requests import readable, request_for
from mmctl.client.samples import Sample, compare, naming
from mmctl.client.tls import Tls
from mmctl.client.transport import GrpcTransport, open_channel
from mmctl.errors import MmctlError, WorldError
from mmctl.inference import InferRequest
from mmctl.loadtest.counts import Counts
from mmctl.loadtest.engine import GoneError, Load, Send, Watch, keep_asking, send_on_time
from mmctl.loadtest.gpu import watching
from mmctl.loadtest.machine import cpu_seconds
from mmctl.loadtest.perf_analyzer import Program, Target, offer
from mmctl.loadtest.quality import grade
from mmctl.loadtest.record import Recorder
from mmctl.loadtest.result import Level, Measured
from mmctl.loadtest.schedule import Arrivals, ClosedLoop, Profile, send_times
from mmctl.tensors import Signature

WARM_REQUESTS = 8
"""Sent before and not counted, one at a time: first requests allocate, connect, load."""
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Server:
    """The Triton that is to be loaded; `pid` where it runs on this machine and is known, `metrics`
    (host:port) where it has some.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: Tls | None = None
    pid: int | None = None
    metrics: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is sent, in turn, and what the answers should be; "expect" may be empty. `batched`: the
    arrays have a batch axis.
    """

    requests: Sequence[InferRequest]
    expect: Sequence[Mapping[str, object]]
    batched: bool = True


def asked_of(model: str, samples: Sequence[Sample], signature: Signature) -> Asked:
    """Raises InputError, naming the sample, for one that the model does not take."""
    requests = []
    for sample in samples:
        with naming(sample):
            requests.append(request_for(model, sample.inputs, signature))
    expect = [sample.expect for sample in samples]
    return Asked(requests, expect, batched=bool(signature.max_batch))


@dataclass(frozen=True, slots=True)
class Plan:
    """How a load is offered. `check` compares each answer with its recorded one."""

    profile: Profile
    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 1
    timeout_s: float = 10.0
    check: bool = False


@dataclass(slots=True)
class Progress:
    """Told once a second: at which number of callers (None in an open loop), what has come, and
    how many requests are in flight.
    """

    tell: Callable[[int | None, Recorder, int], None]

    def of(self, callers: int | None) -> Watch:
        return lambda recorder, in_flight: self.tell(callers, recorder, in_flight)


def measure(
    server: Server,
    asked: Asked,
    plan: Plan,
    about: Mapping[str, Any],
    progress: Progress,
    program: Program | None = None,
) -> Measured:
    """Offer the load, by our own engine or by a perf_analyzer. What was measured until the server
    was gone, or Ctrl-C came, is kept: `partial` says so. Raises WorldError when the server is not
    there from the start.
    """
    measured = Measured(about=about)
    with (
        GrpcTransport(server.url, server.headers, server.tls) as transport,
        watching(server.metrics) as gpus,
    ):
        counted = _Counted(transport, server.pid)
        try:
            if program is None:
                asyncio.run(_measure(server, asked, plan, measured, progress, counted.begin))
            else:
                _measure_with(program, asked, plan, measured, transport, counted.begin)
        except GoneError as error:
            measured.partial = str(error)
        except KeyboardInterrupt:
            measured.partial = INTERRUPTED
        measured.cpu, measured.nodes = counted.cpu.used(), counted.models.since()
    measured.gpu = gpus.told()
    return measured


def _measure_with(
    program: Program,
    asked: Asked,
    plan: Plan,
    measured: Measured,
    transport: GrpcTransport,
    begin: Callable[[], None],
) -> None:
    for number in range(WARM_REQUESTS):
        transport.infer(asked.requests[number % len(asked.requests)], plan.timeout_s)
    begin()
    target = Target(transport.address, asked.requests, asked.batched)
    try:
        offer(program, target, plan.profile, plan.arrivals, plan.seed, measured)
    except WorldError as error:
        if not measured.levels:
            raise
        measured.partial = error.message


def add_quality(
    measured: Measured, server: Server, asked: Asked, labelled: Sequence[Sample], timeout_s: float
) -> None:
    """How good the answers are; `asked` is made of the labelled samples. When the server is gone
    meanwhile, a package for a score is missing, or Ctrl-C comes, `partial` says so and the load's
    numbers are kept.
    """
    try:
        with GrpcTransport(server.url, server.headers, server.tls) as transport:
            measured.quality = grade(
                labelled, lambda n: readable(transport.infer(asked.requests[n], timeout_s))
            )
    except MmctlError as error:
        measured.partial = f"the load is whole, the quality is not: {error.message}"
    except KeyboardInterrupt:
        measured.partial = INTERRUPTED


async def _measure(
    server: Server,
    asked: Asked,
    plan: Plan,
    measured: Measured,
    progress: Progress,
    begin: Callable[[], None],
) -> None:
    """`begin` is called once the server is warm."""
    channel = open_channel(server.url, server.tls)
    try:
        prepared = Prepared(channel, server.url, asked.requests, server.headers)
        for number in range(WARM_REQUESTS):
            await prepared.send(number, plan.timeout_s)
        begin()
        send = (
            _checking(prepared, asked, plan, measured) if plan.check else _sending(prepared, plan)
        )
        match plan.profile:
            case ClosedLoop() as profile:
                for callers in profile.callers:
                    load = _load(send, profile.seconds_each, progress.of(callers), measured)
                    with _level(measured, load, callers):
                        await keep_asking(load, callers, profile.seconds_each)
            case profile:
                load = _load(send, profile.seconds, progress.of(None), measured)
                with _level(measured, load, None):
                    await send_on_time(load, send_times(profile, plan.arrivals, plan.seed))
    finally:
        await channel.close()


def _load(send: Send, seconds: float, watch: Watch, measured: Measured) -> Load:
    load = Load(send, Recorder(seconds), watch)
    load.wrong = dict(measured.wrong)
    measured.wrong = load.wrong
    return load


class _level:  # reads as a statement
    """Notes a level when it ends, however it ends."""

    def __init__(self, measured: Measured, load: Load, callers: int | None) -> None:
        self._measured, self._load, self._callers = measured, load, callers

    def __enter__(self) -> None:
        """The load begins by itself."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Answers that come after the last request has left count, and so does the time till then.
        seconds = self._load.now
        if kind is None:
            seconds = max(seconds, self._load.recorder.seconds)
        self._measured.levels.append(Level(self._callers, self._load.recorder, seconds))


def _sending(prepared: Prepared, plan: Plan) -> Send:
    async def send(number: int) -> str:
        await prepared.send(number, plan.timeout_s)
        return ""

    return send


def _checking(prepared: Prepared, asked: Asked, plan: Plan, measured: Measured) -> Send:
    measured.checked = 0

    async def send(number: int) -> str:
        answer = prepared.read(await prepared.send(number, plan.timeout_s))
        expect = asked.expect[number % len(asked.expect)]
        measured.checked = (measured.checked or 0) + bool(expect)
        return "; ".join(compare(answer.outputs, expect)[:1])

    return send


class _Counted:
    """What the server counts, and the CPU time that is spent, from when the load begins."""

    def __init__(self, transport: GrpcTransport, pid: int | None) -> None:
        self._pid = pid
        self.models = Counts(transport)
        self.cpu = _Cpu(pid)

    def begin(self) -> None:
        self.models.begin()
        self.cpu = _Cpu(self._pid)


class _Cpu:
    """CPU time of the server and of this process."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._server = cpu_seconds(pid) if pid is not None else None
        self._own = _own_seconds()

    def used(self) -> dict[str, float | None]:
        server = None
        if self._pid is not None and self._server is not None:
            server = round(max(0.0, cpu_seconds(self._pid) - self._server), 3)
        return {
            "server_seconds": server,
            "client_seconds": round(_own_seconds() - self._own, 3),
        }


def _own_seconds() -> float:
    """CPU time of this process and of programs that it has waited for."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system
