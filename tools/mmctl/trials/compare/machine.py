"""Where and when a comparison was measured."""

from __future__ import annotations

import importlib.metadata
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from mmctl import __version__
from mmctl.exporters.precision.cpu import has_vnni
from mmctl.loadtest.machine import cores, cpu_name

FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8")
"""What decides how fast a processor multiplies."""
PACKAGES = ("onnxruntime", "onnx", "numpy")


def circumstances(threads: int) -> dict[str, str]:
    """By name, in the order to show them."""
    cpu = Path("/proc/cpuinfo").read_text()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{cores()} cores of {cpu_name(cpu)}",
        "processor flags": " ".join(cpu_flags(cpu)) or "none that matter here",
        "VNNI": "yes" if has_vnni() else "no: INT8 gains less",
        "threads": str(threads),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "versions": ", ".join(
            [f"mmctl {__version__}", *(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES)]
        ),
    }


def cpu_flags(cpuinfo: str) -> list[str]:
    found = re.search(r"^flags\s*: (.*)", cpuinfo, re.MULTILINE)
    present = found[1].split() if found else []
    return [flag for flag in FLAGS if flag in present]
