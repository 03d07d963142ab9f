"""What the embedded Triton asks of a machine, beside a Python."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from mmctl.errors import WorldError

GLIBC = (2, 35)
RUNTIME_BYTES = 600_000_000
"""What the runtime takes on the disk while it is being installed; about half of it stays."""

LOG_BYTES = 50_000_000
"""What a server's log and state may take."""

SHM_BYTES = 64_000_000
"""Each Python model instance takes 1 MB of shared memory, and more for large tensors."""

ELSEWHERE = (
    "use a container (`mmctl serve --docker IMAGE`), a Triton elsewhere (`--target URL`), "
    "or a machine with Linux on x86-64 and glibc 2.35 or newer (Debian 12, Ubuntu 22.04)"
)


def lacks_platform(system: str, machine: str) -> str | None:
    """What is wrong with the operating system and processor; None when they fit."""
    if system == "Linux" and machine in ("x86_64", "AMD64"):
        return None
    return f"this is {system} on {machine}; the embedded Triton is a binary for Linux on x86-64"


def lacks_glibc(library: str, version: str) -> str | None:
    """What is wrong with the C library; None when it fits."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    if library == "glibc" and numbers >= GLIBC:
        return None
    wanted = ".".join(str(number) for number in GLIBC)
    found = f"{library} {version}" if library else "another one"
    return f"the C library is {found}; the embedded Triton needs glibc {wanted} or newer"


def require_platform() -> None:
    """Raises WorldError when no download could make the embedded Triton run here."""
    problem = lacks_platform(platform.system(), platform.machine()) or lacks_glibc(
        *platform.libc_ver()
    )
    if problem:
        raise WorldError(problem, hint=ELSEWHERE)


def lacks_space(folder: Path, needed_bytes: int) -> str | None:
    """What is wrong with the free space of the disk that holds `folder`."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    if free >= needed_bytes:
        return None
    return f"{there} has {free / 1e6:.0f} MB free; {needed_bytes / 1e6:.0f} MB are needed"
