"""What this machine's CPU can do with 8-bit numbers."""

from __future__ import annotations

from pathlib import Path

VNNI = {"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm"}
"""Linux's words for dot products of 8-bit numbers that cannot saturate, on x86 and ARM."""


def has_vnni(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    try:
        return not VNNI.isdisjoint(cpuinfo.read_text().split())
    except OSError:
        return False
