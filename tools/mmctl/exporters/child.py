"""The child process of an export: `python -m mmctl.exporters.child FOLDER`.

Reads job.json in the folder and leaves a model.lock or an error.json there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mmctl.errors import InputError, MmctlError
from mmctl.exporters.base import Task
from mmctl.exporters.keys import build_key
from mmctl.exporters.process import ERROR, JOB
from mmctl.exporters.spec import FILE, read_model
from mmctl.files import sha256_file, write_json, write_text
from mmctl.triton.repository import LOCK, Lock, render_lock
from mmctl.workspace import read_workspace


def main(scratch: Path) -> None:
    job = json.loads((scratch / JOB).read_text())
    try:
        lock = _export(job)
    except MmctlError as error:
        shown = f"model_repository/{job['model']}"
        answer = {
            "exit_code": error.exit_code,
            "message": f"{shown}: {error.message}",
            "hint": error.hint,
        }
        write_json(scratch / ERROR, answer)
    else:
        write_text(scratch / LOCK, render_lock(lock))


def _export(job: dict[str, str]) -> Lock:
    workspace = read_workspace(Path(job["root"]))
    model = read_model(workspace, job["model"])
    out = Path(job["out"])
    file = model.file
    exported = file.source.export(
        Task(
            place=model.place,
            located=Path(job["located"]),
            out=out,
            batched=file.batched,
            rename=file.rename,
            tolerance=file.verify.tolerance,
            declared=file.declared,
        )
    )
    if build_key(workspace, model) != job["build_key"]:
        raise InputError(f"{FILE} or its sources changed during the export", hint="run it again")
    return Lock(
        version=0,
        build_key=job["build_key"],
        signature=exported.signature,
        files={
            path.relative_to(out).as_posix(): sha256_file(path)
            for path in sorted(out.rglob("*"))
            if path.is_file()
        },
        precision=file.precision,
        evidence=exported.evidence,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
