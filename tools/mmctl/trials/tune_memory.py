"""What the instances of a server's models hold in memory. Only processes can be asked: Triton has
one for each instance of a Python model, and for models that mmctl's ONNX backend runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mmctl.server.stubs import parse_stub


def available_bytes() -> float:
    """What processes of this machine can still have."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def resident(pids: Sequence[int]) -> dict[str, float]:
    """Bytes that an instance of each model holds, the largest one's. Peaks count from here on."""
    found = _by_model(pids, "VmRSS")
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    return found


def peaks(pids: Sequence[int]) -> dict[str, float]:
    """The most that an instance of each model has held."""
    return _by_model(pids, "VmHWM")


def _by_model(pids: Sequence[int], key: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for pid in pids:
        with suppress(OSError):
            stub = parse_stub(Path(f"/proc/{pid}/cmdline").read_bytes())
            if stub is not None:
                held = _kilobytes(Path(f"/proc/{pid}/status"), key)
                found[stub.model] = max(found.get(stub.model, 0.0), held)
    return found


def _kilobytes(path: Path, key: str) -> float:
    match = re.search(rf"^{key}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    return float(match[1]) * 1024 if match else 0.0
