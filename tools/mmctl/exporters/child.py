"""The child process of an export: `python -m mmctl.exporters.child FOLDER`.

Reads job.json in the folder and leaves a model.lock or an error.json there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mmctl.errors import InputError, MmctlError
from mmctl.exporters.base import Evidence, Task
from mmctl.exporters.keys import build_key
from mmctl.exporters.lowering import Lowering, prove_floor
from mmctl.exporters.merge import examples_of, merge_files
from mmctl.exporters.process import ERROR, JOB
from mmctl.exporters.spec import FILE, Model, read_model
from mmctl.files import sha256_file, write_json, write_text
from mmctl.triton.generate import ONNX
from mmctl.triton.recipe import recipe_of
from mmctl.triton.repository import LOCK, Lock, render_lock
from mmctl.workspace import read_workspace


def main(scratch: Path) -> None:
    job = json.loads((scratch / JOB).read_text())
    try:
        lock = _merge(job) if "wiring" in job else _export(job)
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


def _merge(job: dict[str, Any]) -> Lock:
    out = Path(job["out"])
    recipe = recipe_of(job["wiring"], job["tolerance"])
    files = {name: Path(path) for name, path in job["files"].items()}
    merged = merge_files(recipe, files, examples_of(read_workspace(Path(job["root"])), recipe), out)
    return Lock(0, job["build_key"], merged.signature, _digests(out), evidence=merged.evidence)


def _export(job: dict[str, Any]) -> Lock:
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
    evidence = [*exported.evidence, *_gated(model, job)]
    if build_key(workspace, model) != job["build_key"]:
        raise InputError(f"{FILE} or its sources changed during the export", hint="run it again")
    return Lock(
        version=0,
        build_key=job["build_key"],
        signature=exported.signature,
        files=_digests(out),
        precision=file.precision,
        evidence=tuple(evidence),
    )


def _gated(model: Model, job: dict[str, Any]) -> list[Evidence]:
    """What is measured on the user's samples, and the conversion to another precision."""
    out = Path(job["out"])
    if model.file.precision != "fp32":
        return Lowering(model, out, known=job["known"], force=job["force"]).run()
    if model.file.verify.has_floor:
        return prove_floor(model, out / ONNX.filename)
    return []


def _digests(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): sha256_file(path)
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
