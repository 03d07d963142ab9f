"""A Triton that this process has started, and that ends with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from mmctl.errors import MmctlError, WorldError
from mmctl.server.access import grpc_headers, new_key
from mmctl.server.control import LOAD_TIMEOUT_S, Control, Refusal
from mmctl.server.crash import crash, quoted
from mmctl.server.docker import docker_launch
from mmctl.server.docker import otlp_url as docker_otlp_url
from mmctl.server.flags import BLS_THREADS, CACHE_BYTES, EXIT_TIMEOUT_S, Addresses, Options
from mmctl.server.guard import Guard
from mmctl.server.info import EMBEDDED, ServerInfo, info_path, write_server
from mmctl.server.launch import Launch
from mmctl.server.log import find_failures, find_loading, find_reason
from mmctl.server.place import (
    Place,
    calls_at_once,
    make_place,
    model_folders,
    models_with_warm_up,
)
from mmctl.server.ports import HOST, reserved
from mmctl.server.runtime import Runtime, check_numpy
from mmctl.server.stubs import StubWatch, read_stubs
from mmctl.server.wheel import remove_abandoned_regions, wheel_launch

Say = Callable[[str], None]

PROGRESS_S = 5.0
POLL_S = 0.05
GRACE_S = EXIT_TIMEOUT_S + 5.0


class EmbeddedTriton:
    """A running server. A context manager: the server ends with the block and with this process.

        with EmbeddedTriton.start(runtime, tree, state=workspace.state) as server:
            print(server.http)

    `http`, `grpc` and `metrics` are host:port; `log` is the file that Triton writes to. `control`
    may load and unload; for a client over gRPC that wants to as well there are `headers`.
    """

    def __init__(
        self,
        place: Place,
        launch: Launch,
        addresses: Addresses,
        otlp: int,
        options: Options,
        say: Say,
    ) -> None:
        count = len(model_folders(place.served))
        say(f"starting Triton {launch.release} with {count} model{'' if count == 1 else 's'}")
        self.http = f"{HOST}:{addresses.http}"
        self.grpc = f"{HOST}:{addresses.grpc}"
        self.metrics = f"{HOST}:{addresses.metrics}"
        self.log = place.log
        self.shm_prefix = launch.shm_prefix
        self._place, self._say = place, say
        self.control = Control(self.http, options.key)
        self.headers = grpc_headers(options.key)
        self._failed = self._stopped = False
        self._watch: StubWatch | None = None
        info = info_path(place.state, place.target) if place.state else None
        self._guard = Guard(launch, place.log, info, GRACE_S if place.state else 0)
        self.info = ServerInfo(
            pid=self._guard.pid,
            http=self.http,
            grpc=self.grpc,
            metrics=self.metrics,
            otlp=f"{HOST}:{otlp}",
            served=str(place.served),
            release=launch.release,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            key=options.key,
            bls_threads=options.bls_threads,
        )

    @classmethod
    def start(
        cls,
        runtime: Runtime,
        served: Path,
        *,
        state: Path,
        target: str = EMBEDDED,
        private: bool = False,
        http: int = 0,
        grpc: int = 0,
        metrics: int = 0,
        complete_configs: bool = False,
        config_name: str | None = None,
        load_all: bool = True,
        cache: bool = True,
        reload_dead: bool = True,
        say: Say = lambda _: None,
    ) -> Self:
        """Start the embedded Triton on a tree and wait until it has tried to load every model.

        Port 0 takes any free one. A private server is for this process alone: commands that look
        for the target's server do not find it. Models that do not load are in `failures()`.
        `load_all` False: it starts empty, for `load`. `cache` False: every request is computed.
        `reload_dead`: a Python model whose process died is loaded again.
        Raises WorldError when a port is in use or Triton dies, InputError when the target has a
        server already.
        """
        check_numpy(runtime)
        remove_abandoned_regions()
        place = make_place(served, state, target, private)
        with reserved(_wanted(http, grpc, metrics)) as ports:
            options = Options(
                complete_configs=complete_configs,
                config_name=config_name,
                load_all=load_all,
                bls_threads=max(BLS_THREADS, calls_at_once(place.served)),
                cache_bytes=CACHE_BYTES if cache else 0,
                otlp_url=f"http://{HOST}:{ports[3]}/v1/traces",
                key=new_key(),
            )
            addresses = Addresses(HOST, *ports[:3])
            launch = wheel_launch(runtime, place.served, addresses, options)
            server = cls(place, launch, addresses, ports[3], options, say)
            return server._begin(reload_dead=reload_dead)

    @classmethod
    def start_in_docker(
        cls,
        image: str,
        served: Path,
        *,
        state: Path,
        target: str = EMBEDDED,
        http: int = 0,
        grpc: int = 0,
        metrics: int = 0,
        complete_configs: bool = False,
        config_name: str | None = None,
        say: Say = lambda _: None,
    ) -> Self:
        """The same in NVIDIA's container, which needs an engine; see `start`."""
        place = make_place(served, state, target, private=False)
        with reserved(_wanted(http, grpc, metrics)) as ports:
            addresses = Addresses(HOST, *ports[:3])
        options = Options(
            complete_configs=complete_configs,
            config_name=config_name,
            bls_threads=max(BLS_THREADS, calls_at_once(place.served)),
            otlp_url=docker_otlp_url(ports[3]),
            key=new_key(),
        )
        launch = docker_launch(image, place.served, addresses, options)
        return cls(place, launch, addresses, ports[3], options, say)._begin()

    @property
    def alive(self) -> bool:
        return self._guard.alive

    def announce_store(self, url: str) -> None:
        """Tell other commands of the shared store that was started with this server."""
        self.info = replace(self.info, store=url)
        self._write_info()

    def load(self, model: str, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Load what has changed of a model. Raises WorldError with the reason when it fails."""
        said_before = self.log.stat().st_size
        try:
            self.control.load(model, timeout_s)
        except Refusal as refusal:
            reason = find_reason(model, self._read_log(said_before)) or str(refusal).strip()
            raise WorldError(
                f"`{model}` does not load: {reason}", hint="what was loaded before still serves"
            ) from None
        except WorldError as error:
            self._raise_death(error)
            raise

    def failures(self) -> Mapping[str, str]:
        """Models that should be served and are not, with the reason that Triton's API may hide."""
        found = find_failures(
            model_folders(self._place.served), self.control.index(), self._read_log()
        )
        self._failed = self._failed or bool(found)
        return found

    def stub_pids(self) -> tuple[int, ...]:
        """The processes that Python models run in; they change when a model is reloaded."""
        server = self._guard.server_pid()
        return tuple(sorted(read_stubs(server))) if server else ()

    def wait(self) -> None:
        """Until the server ends. Raises WorldError when it died rather than was ended."""
        while self.alive:
            time.sleep(POLL_S)
        self._raise_death()

    def stop(self, *, at_once: bool = False) -> None:
        """End the server and all it leaves behind, requests under way first unless `at_once`.

        A private server is always ended at once: nobody but its starter has requests there.
        """
        if self._watch:
            self._watch.stop()
        if self._stopped:
            return
        self._stopped = True
        died = not self.alive and self._guard.code != 0
        self._guard.end(at_once=at_once)
        if self._place.state is None and not died and not self._failed:
            self.log.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        ended_before = not self._stopped and not self.alive
        self.stop()
        if ended_before and (error is None or isinstance(error, MmctlError)):
            self._raise_death(error)

    def _begin(self, *, reload_dead: bool = True) -> Self:
        """Itself once it is up. Where that fails it is ended."""
        try:
            self._wait_until_live()
            if reload_dead:
                self._begin_watch()
            self._write_info()
        except BaseException:
            self.stop(at_once=True)
            raise
        return self

    def _write_info(self) -> None:
        """For other commands, which do not find a private one."""
        if self._place.state:
            write_server(self._place.state, self._place.target, self.info)

    def _wait_until_live(self) -> None:
        """Triton answers once it has tried to load everything."""
        begin = told = time.monotonic()
        while not self.control.live():
            self._raise_death()
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                loading = find_loading(self._read_log())
                waiting = f"; loading {quoted(loading.unfinished)}" if loading.unfinished else ""
                self._say(f"  {len(loading.ready)} loaded after {told - begin:.0f} s{waiting}")
            time.sleep(POLL_S)
        self._say(f"Triton {self.info.release} is up after {time.monotonic() - begin:.1f} s")

    def _begin_watch(self) -> None:
        server = self._guard.server_pid()
        if server and self.shm_prefix:
            self._watch = StubWatch(server, self._place.served, self.control, self._say)
            self._watch.start()

    def _raise_death(self, cause: BaseException | None = None) -> None:
        """Raises WorldError when the server has ended without being asked to."""
        if not self.alive and self._guard.code != 0:
            raise crash(
                self._guard.code,
                self._read_log(),
                self.log,
                warmed=models_with_warm_up(self._place.served),
                stubs=self._watch.deaths if self._watch else (),
            ) from cause

    def _read_log(self, offset: int = 0) -> str:
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")
        return ""


def _wanted(http: int, grpc: int, metrics: int) -> list[tuple[str, int]]:
    return [("http", http), ("grpc", grpc), ("metrics", metrics), ("otlp", 0)]
