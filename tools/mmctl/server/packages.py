"""Installing packages into an environment that is not mmctl's own."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mmctl.errors import WorldError

EMBEDDED = "the embedded Triton"

TELLING = ("error", "× ", "╰─", "the user requested")
"""How the lines of pip, uv and venv begin, in lower case, that say why they failed."""

PROGRESS = ("Collecting ", "Downloading ", "Installing ", " + ")
"""How the lines of pip and uv begin that tell somebody who waits what is going on."""


_VERSIONS = re.compile(r" \(from versions: [^)]*\)")


def make_environment(python: Path, root: Path) -> None:
    """A virtual environment at `root`, without pip: packages come from outside."""
    command = [str(python), "-I", "-m", "venv", "--without-pip", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _cannot_install(EMBEDDED, done.stdout + done.stderr)


def install_packages(
    python: Path,
    arguments: Sequence[str],
    say: Callable[[str], None],
    *,
    what: str = EMBEDDED,
) -> None:
    """Install into the environment of `python` with the pip or uv of the tool's side.

    `what` is how an error names the packages.
    """
    command = [*_installer(python), *arguments]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith(PROGRESS):
                say(f"  {line.partition(' (from ')[0].strip()}")
    if process.returncode:
        raise _cannot_install(what, "".join(lines))


def find_installer() -> str:
    """`pip`, of the Python that runs mmctl, or `uv`. Raises WorldError when there is neither."""
    if importlib.util.find_spec("pip"):
        return "pip"
    if shutil.which("uv"):
        return "uv"
    raise WorldError(
        f"neither pip (for {sys.executable}) nor uv is there to install the embedded Triton",
        hint=f"run `{sys.executable} -m ensurepip`, or install uv",
    )


def _installer(python: Path) -> list[str]:
    if find_installer() == "pip":
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
        return [*pip, "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return ["uv", "pip", "install", "--python", str(python)]


def _cannot_install(what: str, output: str) -> WorldError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith(TELLING)]
    reason = "".join(f"\n  {_VERSIONS.sub('', line)}" for line in (telling or lines)[-4:])
    return WorldError(
        f"{what} cannot be installed:{reason}",
        hint="check the network, the package index (`pip config list`) and the free space, "
        "then run `mmctl runtime install`",
    )
