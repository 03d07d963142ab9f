"""Loopback ports for a server: given ones that are free, or any."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from mmctl.errors import WorldError

HOST = "127.0.0.1"


@contextmanager
def reserved(wanted: Sequence[tuple[str, int]]) -> Iterator[tuple[int, ...]]:
    """Ports by (name of its option, number or 0 for any), kept from others inside the block.

    They are bound but not listened on, with address reuse: a server that binds with it, as
    Triton does, can take them over; nobody else is given them. Raises WorldError for one in use.
    """
    with ExitStack() as stack:
        yield tuple(_reserve(stack, name, port) for name, port in wanted)


def _reserve(stack: ExitStack, name: str, port: int) -> int:
    place = stack.enter_context(socket.socket())
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((HOST, port))
    except OSError as error:
        raise port_in_use(name, port, error.strerror or str(error)) from error
    return int(place.getsockname()[1])


def port_in_use(name: str, port: int, reason: str = "it is in use") -> WorldError:
    return WorldError(
        f"port {port} of {HOST} cannot be used for {name}: {reason}",
        hint=f"pass another with `--{name} N` (0 takes any free one), or end what listens there: "
        "`mmctl stop` ends mmctl's own server",
    )
