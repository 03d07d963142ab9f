"""An emulator of Google's object store in a process of its own, on a free port. It knows no
conditional writes: of two that create an object at once both succeed.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

from s3_server import answering

BUCKET = "bucket"


def gs_server() -> AbstractContextManager[str]:
    """Its address, as host:port."""
    return answering(__file__)


def main() -> None:
    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    server.start()
    host, port = server._api._httpd.server_address[:2]
    print(f"at {host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
