"""Who may steer a server: whoever sends its key. What asks and what only tells is open to all.

The key is no secret from users of the same machine who may see its processes: Triton takes it on
its command line only. It keeps out web pages, containers and other machines.
"""

from __future__ import annotations

import secrets

RESTRICTED = ("model-repository", "logging", "trace", "shared-memory")
"""The protocols, as Triton calls them, that change a server or read what is not the caller's."""

HEADER = "mmctl-key"
GRPC_HEADER = f"triton-grpc-protocol-{HEADER}"
"""Over gRPC Triton puts its own words before the name."""


def new_key() -> str:
    """A key for one server, from its start to its end."""
    return secrets.token_hex(16)


def http_headers(key: str) -> dict[str, str]:
    return {HEADER: key} if key else {}


def grpc_headers(key: str) -> dict[str, str]:
    return {GRPC_HEADER: key} if key else {}


def access_flags(key: str) -> tuple[str, ...]:
    """Flags of tritonserver; none without a key, which leaves everything open."""
    if not key:
        return ()
    rule = f"{','.join(RESTRICTED)}:{HEADER}={key}"
    return (f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}")
