"""Which NVIDIA GPUs this machine has."""

from __future__ import annotations

import shutil
import subprocess

ASK = ("--query-gpu=compute_cap", "--format=csv,noheader")
WAIT_S = 30


def local_capabilities() -> tuple[str, ...]:
    """The compute capability of each GPU, "9.0"; empty where there is none that works."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run(
            [program, *ASK], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(done.stdout.split()) if done.returncode == 0 else ()
