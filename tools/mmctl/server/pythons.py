"""Finding a Python that can run inside the embedded Triton: CPython 3.11 or 3.12, shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmctl.errors import WorldError

VERSIONS = ("3.11", "3.12")
"""The versions that have both a stub in the wheel and a numpy below 2; the first is preferred."""

WAYS_OUT = (
    "install one (`uv python install 3.11`, `pyenv install 3.11` with "
    "`PYTHON_CONFIGURE_OPTS=--enable-shared`, or `apt install python3.11 libpython3.11`) or name "
    "one with `mmctl runtime install --python PATH`; without one, use a container "
    "(`mmctl serve --docker IMAGE`) or a Triton elsewhere (`--target URL`)"
)

_PROBE = """
import json, platform, sys, sysconfig
print(json.dumps({
    "implementation": platform.python_implementation(),
    "version": platform.python_version(),
    "path": sys.executable,
    "folders": [sysconfig.get_config_var("LIBDIR"), sys.base_prefix + "/lib",
                "/usr/lib/" + (sysconfig.get_config_var("MULTIARCH") or "")],
}))
"""


@dataclass(frozen=True, slots=True)
class Python:
    """A Python that the stub can embed. `libpython` is the folder of its shared library."""

    path: Path
    version: str
    libpython: Path

    @property
    def minor(self) -> str:
        """`3.11` of `3.11.7`."""
        return minor_of(self.version)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A Python that was looked at, and why the server cannot use it."""

    path: Path
    reason: str
    version: str | None = None
    """Set when it is of the right kind and lacks only its shared library."""


def minor_of(version: str) -> str:
    return ".".join(version.split(".")[:2])


def find_python(wanted: str | None = None, env: Mapping[str, str] = os.environ) -> Python:
    """The Python to make the server's environment with: `wanted`, else the first that fits.

    Looks at PATH, pyenv's and uv's folders and the Python that runs mmctl. Raises WorldError that
    says what was found and the ways out.
    """
    unusable = []
    for found in look_at_pythons(wanted, env):
        if isinstance(found, Python):
            return found
        unusable.append(found)
    raise WorldError(_nothing_fits(unusable), hint=WAYS_OUT)


def look_at_pythons(
    wanted: str | None = None, env: Mapping[str, str] = os.environ
) -> Iterator[Python | Unusable]:
    """Every Python that `find_python` would look at, in its order."""
    for place in [Path(wanted)] if wanted else dict.fromkeys(_places(env)):
        yield inspect_python(place)


def inspect_python(path: Path) -> Python | Unusable:
    """Run the Python at `path` and judge it."""
    found = _probe(path)
    if found is None:
        return Unusable(path, "it does not run")
    if found["implementation"] != "CPython" or minor_of(found["version"]) not in VERSIONS:
        return Unusable(path, f"it is {found['implementation']} {found['version']}")
    minor = minor_of(found["version"])
    for folder in map(Path, filter(None, found["folders"])):
        if (folder / f"libpython{minor}.so.1.0").exists():
            return Python(Path(found["path"]), found["version"], folder)
    return Unusable(
        path,
        f"it has no shared libpython (Debian and Ubuntu: package `libpython{minor}`; pyenv: "
        f"reinstall with `PYTHON_CONFIGURE_OPTS=--enable-shared`)",
        version=found["version"],
    )


def _places(env: Mapping[str, str]) -> Iterator[Path]:
    """Where Pythons of the right versions usually lie, the preferred version first."""
    home = Path(env.get("HOME", "/nonexistent"))
    pyenv = Path(env.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = Path(env.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python"))
    for version in VERSIONS:
        for folder in env.get("PATH", "").split(os.pathsep):
            if (path := Path(folder) / f"python{version}").is_file():
                yield path
        yield from sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)
        yield from sorted(uv.glob(f"cpython-{version}.*/bin/python{version}"), reverse=True)
    yield Path(sys.executable)


def _probe(path: Path) -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [path, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=20, check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return answer


def _nothing_fits(looked: list[Unusable]) -> str:
    message = (
        "the embedded Triton needs CPython 3.11 or 3.12 with a shared libpython, "
        "and this machine has none"
    )
    return message + "".join(f"\n  {one.path}: {one.reason}" for one in looked)
