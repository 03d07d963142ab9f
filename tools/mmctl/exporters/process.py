"""Runs an export in a child process, so that a crash of a native library is only an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mmctl.errors import InputError, MmctlError, Refused, WorldError
from mmctl.exporters.spec import Model
from mmctl.files import write_json, writing_to
from mmctl.triton.repository import Lock, read_lock
from mmctl.workspace import Workspace

JOB = "job.json"
ERROR = "error.json"
"""The child's answer when it raised an error of ours; else it answers with a lock."""

LAST_LINES = 6

KINDS: dict[int, type[MmctlError]] = {
    kind.exit_code: kind for kind in (Refused, InputError, WorldError)
}


def run_export(
    model: Model,
    build_key: str,
    located: Path,
    out: Path,
    *,
    known: Mapping[str, str],
    force: bool = False,
) -> Lock:
    """Export into the folder `out`; the lock has no version number and no history yet.

    `known` are the digests of files that were proven under this key: equal ones are not measured
    again. `force` accepts a conversion that is not faster. Raises what the export raised, or
    WorldError when the child died. What it printed is in `.mmctl/logs/export_<name>.log`.
    """
    job = {
        "build_key": build_key,
        "located": str(located),
        "out": str(out),
        "known": dict(known),
        "force": force,
    }
    return run_job(model.place.workspace, model.name, job)


def run_job(workspace: Workspace, name: str, job: Mapping[str, object]) -> Lock:
    """As `run_export`, for any job that the child knows."""
    log = workspace.state / "logs" / f"export_{name}.log"
    with tempfile.TemporaryDirectory(prefix="mmctl-export-") as folder:
        scratch = Path(folder)
        write_json(scratch / JOB, {"root": str(workspace.root), "model": name, **job})
        code = _run_child(scratch, log)
        if (scratch / ERROR).is_file():
            error = json.loads((scratch / ERROR).read_text())
            raise KINDS[error["exit_code"]](error["message"], hint=error["hint"])
        lock = read_lock(scratch)
        if code or lock is None:
            raise _died(name, code, workspace.shown(log), log)
        return lock


def _run_child(scratch: Path, log: Path) -> int:
    """The child's exit code; it never outlives this call."""
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", "mmctl.exporters.child"]
    with writing_to(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    with output:
        child = subprocess.Popen(
            [*command, str(scratch)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"},
        )
        try:
            return child.wait()
        finally:
            child.kill()
            child.wait()


def _died(name: str, code: int, shown: str, log: Path) -> WorldError:
    how = f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = f"read {shown}"
    if code == -signal.SIGKILL:
        hint += "; the machine may be out of memory"
    said = "".join(f"\n  {line}" for line in _last_words(log.read_text(errors="replace")))
    return WorldError(f"export of `{name}` {how}{said and ', after it said:'}{said}", hint=hint)


def _last_words(text: str) -> list[str]:
    """The end of a log, or the place in the code where Python's fault handler saw it crash."""
    lines = [line for line in text.splitlines() if line.strip()]
    crashes = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
    return lines[crashes[-1] :][:LAST_LINES] if crashes else lines[-LAST_LINES:]
