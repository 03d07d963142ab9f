"""The environment that the embedded Triton runs in: a private one, made once, pinned by hash."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mmctl.errors import WorldError
from mmctl.files import sha256_file
from mmctl.server.pythons import minor_of
from mmctl.triton.releases import EMBEDDED as RELEASE
from mmctl.workspace import Workspace

SCHEMA = 1
STAMP = "mmctl-runtime.json"
LOCK = Path(__file__).parent / "requirements.txt"
VARIABLE = "MMCTL_RUNTIME"


@dataclass(frozen=True)
class Runtime:
    """An installed runtime. `requirements` maps pipelines to the digest of what they asked for."""

    root: Path
    version: str
    libpython: Path
    lock: str
    requirements: Mapping[str, str]

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @cached_property
    def packages(self) -> Path:
        return self.root / "lib" / f"python{minor_of(self.version)}" / "site-packages"

    @property
    def triton(self) -> Path:
        """The folder with Triton's `bin`, `backends`, `caches` and stubs."""
        return self.packages / "pytriton" / "tritonserver"

    @property
    def tritonserver(self) -> Path:
        return self.triton / "bin" / "tritonserver"

    @property
    def libs(self) -> Path:
        return self.packages / "nvidia_pytriton.libs"

    @property
    def stub(self) -> Path:
        name = minor_of(self.version)
        return self.triton / "python_backend_stubs" / name / "triton_python_backend_stub"

    @property
    def perf_analyzer(self) -> Path:
        return self.root / "bin" / "perf_analyzer"

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Variables to set for a program of the runtime.

        The stub takes its packages from the first `python3` on PATH; it ignores PYTHONPATH.
        """
        libraries = [str(self.libs), str(self.libpython), base.get("LD_LIBRARY_PATH", "")]
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
            "PATH": os.pathsep.join([str(self.root / "bin"), base.get("PATH", os.defpath)]),
        }


def runtime_root(workspace: Workspace) -> Path:
    """Where the runtime of a workspace is: `MMCTL_RUNTIME`, else `.mmctl/runtime`."""
    return runtime_below(workspace.state)


def runtime_below(state: Path) -> Path:
    """The same by the folder of private state alone, where there may be no workspace."""
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser().absolute() if given else state / "runtime"


def read_runtime(root: Path) -> Runtime | None:
    """The runtime at `root`; None when it is absent, half-made or lost its Python."""
    try:
        stamp = json.loads((root / STAMP).read_text())
        if stamp["schema"] != SCHEMA:
            return None
        runtime = Runtime(
            root=root,
            version=str(stamp["python"]),
            libpython=Path(stamp["libpython"]),
            lock=str(stamp["lock"]),
            requirements=dict(stamp["requirements"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    needed = (runtime.python, runtime.tritonserver, runtime.stub, runtime.libpython)
    return runtime if all(path.exists() for path in needed) else None


def outdated(runtime: Runtime, workspace: Workspace) -> str | None:
    """Why the runtime is not what the workspace needs now; None when it is."""
    if reason := repinned(runtime):
        return reason
    for pipeline, file in requirement_files(workspace).items():
        if runtime.requirements.get(pipeline) != sha256_file(file):
            return f"`{workspace.shown(file)}` has changed"
    return None


def repinned(runtime: Runtime) -> str | None:
    """Why the runtime is not that of this mmctl; None when it is."""
    return None if runtime.lock == sha256_file(LOCK) else "this mmctl pins other packages"


def requirement_files(workspace: Workspace) -> dict[str, Path]:
    """What the pipelines' steps import, by pipeline."""
    return {
        file.parent.name: file for file in sorted(workspace.pipelines.glob("*/requirements.txt"))
    }


def describe_runtime(workspace: Workspace) -> dict[str, object]:
    """What `mmctl runtime info` says; `state` is `ready`, `outdated` or `absent`."""
    root = runtime_root(workspace)
    runtime = read_runtime(root)
    if runtime is None:
        return {"state": "absent", "root": str(root)}
    reason = outdated(runtime, workspace)
    return {
        "state": "outdated" if reason else "ready",
        **({"reason": reason} if reason else {}),
        "root": str(root),
        "triton": RELEASE,
        "python": runtime.version,
        "tritonserver": str(runtime.tritonserver),
        "perf_analyzer": str(runtime.perf_analyzer),
    }


def check_numpy(runtime: Runtime) -> None:
    """Raises WorldError for numpy 2, with which Triton 24.10 silently empties every tensor."""
    found = sorted(runtime.packages.glob("numpy-*.dist-info"))
    versions = [folder.name.removeprefix("numpy-").removesuffix(".dist-info") for folder in found]
    if len(versions) == 1 and versions[0].startswith("1."):
        return
    raise WorldError(
        f"{runtime.root}: holds numpy {' and '.join(versions) or 'of no version'}; "
        "the embedded Triton needs a numpy below 2",
        hint="run `mmctl runtime remove`, then `mmctl runtime install`",
    )


def precompile(runtime: Runtime, folders: Sequence[Path]) -> None:
    """Compile all Python below `folders` to byte code that no modification time invalidates.

    Without it the stub writes its own cache into the model's folder, which makes the next load
    a full reload. A file that does not compile stays as it is: Triton says why when it loads it.
    """
    if not folders:
        return
    options = ["-q", "-q", "--invalidation-mode", "unchecked-hash"]
    command = [str(runtime.python), "-I", "-m", "compileall", *options, *map(str, folders)]
    subprocess.run(command, check=False, capture_output=True)
