"""moto's S3 server in a process of its own, on a free port; it ends with the process that asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

ACCESS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def s3_server() -> AbstractContextManager[str]:
    """Its address, as host:port."""
    return answering(__file__)


@contextmanager
def answering(script: str) -> Iterator[str]:
    """The address of what runs in a script like this one."""
    process = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        address = ""
        for line in process.stdout:
            if line.startswith("at "):
                address = line.split()[1]
                break
        assert address, f"{script} does not start"
        yield address
        process.communicate(timeout=20)


def main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"at {host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
