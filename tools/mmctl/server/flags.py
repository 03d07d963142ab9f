"""The command line of tritonserver, the same for the embedded server and a container. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mmctl.server.access import access_flags

NEVER = 1_000_000
"""Of so many requests one is traced unasked; a request with a sampled `traceparent` always is."""

EXIT_TIMEOUT_S = 10
BLS_THREADS = 32
"""Triton's own default."""

CACHE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a server listens: one host, three ports."""

    host: str
    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve a tree.

    `complete_configs` lets Triton fill in what a config.pbtxt leaves out: right for trees that
    mmctl did not make, ten times slower to load for those that it did. `config_name` picks
    `configs/<name>.pbtxt`. `load_all` False starts without any model. `bls_threads` is how many
    calls one Python model instance may have under way at once. With `cache_bytes` 0 nothing is
    answered from a cache. `otlp_url` is where traces go. Who sends `key` may steer the server,
    nobody else; without one everybody may. `gpus`: it has some, and tells how busy they are.
    """

    complete_configs: bool = False
    load_all: bool = True
    config_name: str | None = None
    bls_threads: int = BLS_THREADS
    cache_bytes: int = CACHE_BYTES
    otlp_url: str | None = None
    key: str = field(default="", repr=False)
    gpus: bool = False


def triton_flags(repository: str, addresses: Addresses, options: Options) -> tuple[str, ...]:
    return (
        f"--model-repository={repository}",
        "--model-control-mode=explicit",
        *(("--load-model=*",) if options.load_all else ()),
        # A model that does not load is reported by name; it does not take the others with it.
        "--exit-on-error=false",
        "--strict-readiness=false",
        *_address_flags(addresses),
        f"--allow-gpu-metrics={str(options.gpus).lower()}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        *((f"--cache-config=local,size={options.cache_bytes}",) if options.cache_bytes else ()),
        bls_threads_flag(options.bls_threads),
        *(() if options.complete_configs else ("--disable-auto-complete-config",)),
        *((f"--model-config-name={options.config_name}",) if options.config_name else ()),
        *(_trace_flags(options.otlp_url) if options.otlp_url else ()),
        *access_flags(options.key),
    )


def bls_threads_flag(count: int) -> str:
    """So many calls may one Python model instance have under way at once."""
    return f"--backend-config=python,thread-pool-size={count}"


def shm_flags(prefix: str, backends: Sequence[str]) -> tuple[str, ...]:
    """Name the shared memory of each Python backend, so that it can be told from another's."""
    return tuple(f"--backend-config={name},shm-region-prefix-name={prefix}" for name in backends)


def _address_flags(addresses: Addresses) -> tuple[str, ...]:
    return tuple(
        flag
        for service in ("http", "grpc", "metrics")
        for flag in (
            f"--{service}-address={addresses.host}",
            f"--{service}-port={getattr(addresses, service)}",
        )
    )


def _trace_flags(url: str) -> tuple[str, ...]:
    settings = (
        "mode=opentelemetry",
        f"opentelemetry,url={url}",
        "opentelemetry,bsp_schedule_delay=500",
        f"rate={NEVER}",
        "level=TIMESTAMPS",
    )
    return tuple(f"--trace-config={setting}" for setting in settings)
