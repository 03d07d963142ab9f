"""Runs an export in a child process, so that a crash of a native library is only an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from mmctl.errors import InputError, MmctlError, Refused, WorldError
from mmctl.exporters.spec import Model
from mmctl.files import write_json, writing_to
from mmctl.triton.repository import Lock, read_lock

JOB = "job.json"
ERROR = "error.json"
"""The child's answer when it raised an error of ours; else it answers with a lock."""

LAST_LINES = 6

KINDS: dict[int, type[MmctlError]] = {
    kind.exit_code: kind for kind in (Refused, InputError, WorldError)
}


def run_export(model: Model, build_key: str, located: Path, out: Path) -> Lock:
    """Export into the folder `out`; the lock has no version number and no history yet.

    Raises what the export raised, or WorldError when the child died. What it printed is in
    `.mmctl/logs/export_<name>.log`.
    """
    place = model.place
    log = place.workspace.state / "logs" / f"export_{model.name}.log"
    with tempfile.TemporaryDirectory(prefix="mmctl-export-") as name:
        scratch = Path(name)
        write_json(
            scratch / JOB,
            {
                "root": str(place.workspace.root),
                "model": model.name,
                "build_key": build_key,
                "located": str(located),
                "out": str(out),
            },
        )
        code = _run_child(scratch, log)
        if (scratch / ERROR).is_file():
            error = json.loads((scratch / ERROR).read_text())
            raise KINDS[error["exit_code"]](error["message"], hint=error["hint"])
        lock = read_lock(scratch)
        if code or lock is None:
            raise _died(model, code, log)
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


def _died(model: Model, code: int, log: Path) -> WorldError:
    how = f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = f"read {model.place.workspace.shown(log)}"
    if code == -signal.SIGKILL:
        hint += "; the machine may be out of memory"
    said = "".join(f"\n  {line}" for line in _last_words(log.read_text(errors="replace")))
    return WorldError(
        f"export of `{model.name}` {how}{said and ', after it said:'}{said}", hint=hint
    )


def _last_words(text: str) -> list[str]:
    """The end of a log, or the place in the code where Python's fault handler saw it crash."""
    lines = [line for line in text.splitlines() if line.strip()]
    crashes = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
    return lines[crashes[-1] :][:LAST_LINES] if crashes else lines[-LAST_LINES:]
