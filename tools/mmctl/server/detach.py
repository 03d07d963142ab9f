"""A server in the background: an `mmctl serve` of its own that outlives this command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO

from mmctl.files import writing_to
from mmctl.server.info import ServerInfo

POLL_S = 0.1


def serve_detached(
    arguments: Sequence[str], output: Path, say: Callable[[str], None]
) -> ServerInfo | int:
    """Run `mmctl ARGUMENTS`, a serve command with `--json`, until its server answers.

    What it says until then is passed on; later it goes to the file `output` alone. The answer has
    no key, which is not printed. Its exit code when it ends instead: then it has said why. On
    Ctrl-C it ends too.
    """
    with writing_to(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        sink = output.open("wb")
    # A file and no pipe: nobody will be at its other end once this command has ended.
    with sink, output.open() as lines, tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(
            [sys.executable, "-m", "mmctl", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=sink,
            start_new_session=True,
        )
        try:
            return _answer(process, answer, lines, say)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def _answer(
    process: subprocess.Popen[bytes],
    answer: IO[bytes],
    lines: IO[str],
    say: Callable[[str], None],
) -> ServerInfo | int:
    """It answers on standard output, after all that it has to say at its start."""
    while True:
        ended = process.poll() is not None
        text = os.pread(answer.fileno(), 65536, 0)  # leaves the position, which is the writer's
        for line in lines:
            say(line.rstrip())
        if ended:
            return process.wait()
        if text.endswith(b"\n}\n"):
            process.returncode = 0  # it is meant to outlive us, and Popen would warn of that
            info = json.loads(text)
            known = [field.name for field in fields(ServerInfo) if field.name in info]
            return ServerInfo(**{name: info[name] for name in known})
        time.sleep(POLL_S)
