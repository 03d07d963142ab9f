"""Receives traces where Triton sends them: OTLP over HTTP, as JSON. No Jaeger is needed."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex
from typing import Any

from mmctl.errors import WorldError
from mmctl.trace.spans import Span, read_traces

MOST_BYTES = 64 * 1024 * 1024
"""Of one export; a longer one is refused."""
FORWARD_S = 5.0
_POLL_S = 0.05


def new_trace() -> tuple[str, dict[str, str]]:
    """A new trace id, and the header that makes a request part of it (W3C Trace Context): a
    server that samples nothing by itself traces this request.
    """
    trace = token_hex(16)
    return trace, {"traceparent": f"00-{trace}-{token_hex(8)}-01"}


class Collector:
    """Exports that have come. What others' requests left is kept too, `traces` tells ours apart."""

    def __init__(self, forward: str | None) -> None:
        self.not_forwarded = 0
        self._forward = forward
        self._exports: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()
        self._came = threading.Event()

    def take(self, body: bytes) -> None:
        """Raises ValueError for what is no export."""
        export = json.loads(body)
        read_traces([export])
        with self._lock:
            self._exports.append(export)
        self._came.set()
        if self._forward is not None:
            self._pass_on(self._forward, body)

    def _pass_on(self, url: str, body: bytes) -> None:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=FORWARD_S).close()
        except OSError:
            self.not_forwarded += 1

    def traces(self, wanted: Collection[str]) -> dict[str, Span]:
        """The whole requests among them, by trace id."""
        with self._lock:
            exports = list(self._exports)
        return {trace: root for trace, root in read_traces(exports).items() if trace in wanted}

    def wait_for(
        self, wanted: Collection[str], timeout_s: float, least: int | None = None
    ) -> dict[str, Span]:
        """All that have come by then, or `least` of them: Triton exports in batches, about twice
        a second. The wait begins anew with each that comes.
        """
        enough = len(wanted) if least is None else least
        seen, deadline = 0, time.monotonic() + timeout_s
        while True:
            self._came.clear()
            found = self.traces(wanted)
            if len(found) > seen:
                seen, deadline = len(found), time.monotonic() + timeout_s
            left = deadline - time.monotonic()
            if len(found) >= enough or left <= 0 or not self._came.wait(left):
                return found


@contextmanager
def collecting(address: str, forward: str | None = None) -> Iterator[Collector]:
    """A collector at `address` (host:port), while the block runs. `forward` is an OTLP/HTTP URL
    that gets all of it too. Raises WorldError when somebody else listens there.
    """
    collector = Collector(forward)
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), _handler(collector.take))
    except OSError as error:
        raise WorldError(
            f"traces go to {address}, and nothing can listen there: {error.strerror or error}",
            hint="end what listens there, or let it forward to another address",
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(take: Callable[[bytes], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if size > MOST_BYTES:
                self.send_error(413)
                return
            try:
                take(self.rfile.read(size))
            except (ValueError, RecursionError) as error:
                self.send_error(400, explain=str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """A server of ours says nothing on its own."""

    return Handler
