"""`mmctl` and whoever reads what it prints: a reader that left, a disk that is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def compile_to(stdout: int, workspace: Path, *, unbuffered: bool) -> tuple[int, str]:
    """`mmctl compile --json` with that file as stdout -> exit code, stderr."""
    words = [sys.executable, "-m", "mmctl", "-C", str(workspace), "compile", "--json"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    done = subprocess.run(
        words, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env, check=False, timeout=60
    )
    return done.returncode, done.stderr


BUFFERS = pytest.mark.parametrize("unbuffered", [False, True], ids=["in one block", "line by line"])


@BUFFERS
def test_a_reader_that_left_is_no_error(workspace: Path, unbuffered: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert compile_to(writer, workspace, unbuffered=unbuffered) == (0, "")
    finally:
        os.close(writer)


@BUFFERS
def test_a_full_disk_is_an_error_of_the_world(workspace: Path, unbuffered: bool) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert compile_to(full, workspace, unbuffered=unbuffered) == (
            3, "error: cannot write: no space left on device\n",
        )  # fmt: skip
    finally:
        os.close(full)
