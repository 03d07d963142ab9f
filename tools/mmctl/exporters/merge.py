"""model.onnx of a merged model: its members' files joined, and proof that they answer the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmctl.errors import Refused
from mmctl.exporters.base import Exported
from mmctl.exporters.compose import compose
from mmctl.exporters.gates import prove
from mmctl.exporters.keys import LIBRARIES, require_libraries
from mmctl.exporters.onnx_file import (
    check_file,
    load_graph,
    open_session,
    runner_of,
    save_graph,
    signature_of_session,
)
from mmctl.exporters.process import run_job
from mmctl.exporters.samples import Drawn, draw_example
from mmctl.exporters.sources.onnx import OnnxSource
from mmctl.exporters.spec import read_model
from mmctl.exporters.traced import Runner
from mmctl.tensors import Array
from mmctl.triton.generate import ONNX
from mmctl.triton.recipe import MergeRecipe
from mmctl.triton.repository import Lock
from mmctl.workspace import Workspace

SCHEMA = 1
"""Goes up when mmctl makes another file of the same members."""


def made_with() -> dict[str, object]:
    """What of mmctl and its libraries decides about a merged file, for the build key."""
    return {"schema": SCHEMA, "onnx": LIBRARIES["onnx"]}


def run_merge(
    workspace: Workspace,
    name: str,
    recipe: MergeRecipe,
    files: Mapping[str, Path],
    out: Path,
    build_key: str,
) -> Lock:
    """Merge in a child process into the folder `out`; `files` maps members to their model.onnx.

    The lock has no version number and no history. Raises Refused when the merged model answers
    otherwise than its members.
    """
    require_libraries(("onnx",))
    job = {
        "build_key": build_key,
        "wiring": recipe.wiring,
        "tolerance": recipe.tolerance,
        "files": {member: str(path) for member, path in files.items()},
        "out": str(out),
    }
    return run_job(workspace, name, job)


def examples_of(workspace: Workspace, recipe: MergeRecipe) -> dict[str, Drawn]:
    """How to draw each input: as the member says whose input it is."""
    sources = {m.name: read_model(workspace, m.model).file.source for m in recipe.members}
    found = {}
    for name, ((member, key), *_) in recipe.inputs.items():
        source = sources[member]
        examples = source.examples if isinstance(source, OnnxSource) else {}
        found[name] = examples.get(key, Drawn())
    return found


def merge_files(
    recipe: MergeRecipe, files: Mapping[str, Path], drawn: Mapping[str, Drawn], out: Path
) -> Exported:
    """Write model.onnx into `out` and prove it; `files` maps members to theirs."""
    path = out / ONNX.filename
    save_graph(compose(recipe, {name: load_graph(file) for name, file in files.items()}), path)
    return prove_merged(path, recipe, files, drawn)


def prove_merged(
    path: Path, recipe: MergeRecipe, files: Mapping[str, Path], drawn: Mapping[str, Drawn]
) -> Exported:
    """Evidence that the file at `path` answers as its members do one after the other.

    Raises Refused with the number that was too large.
    """
    checked = check_file(path)
    session = open_session(path)
    chain = _chain(recipe, {name: open_session(file) for name, file in files.items()})
    example = draw_example(session.get_inputs(), drawn, batched=True)
    try:
        proved = prove(
            runner_of(session),
            chain,
            list(recipe.outputs),
            example,
            batched=True,
            tolerance=recipe.tolerance,
        )
    except Refused as error:
        shown = " and ".join(f"`{member.name}`" for member in recipe.members)
        raise Refused(
            f"{shown} cannot be merged: {error.message}", hint="leave one of them out of `fuse`"
        ) from error
    return Exported(signature_of_session(session, batched=True), (checked, *proved))


def _chain(recipe: MergeRecipe, sessions: Mapping[str, Any]) -> Runner:
    """The members one after the other, called as the merged model is."""
    runners = {name: runner_of(session) for name, session in sessions.items()}
    gives = {name: [o.name for o in session.get_outputs()] for name, session in sessions.items()}

    def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
        known = {("", name): array for name, array in arrays.items()}
        for member in recipe.members:
            given = {key: known[port] for key, port in member.inputs.items()}
            answers = zip(gives[member.name], runners[member.name](given), strict=True)
            known |= {(member.name, name): array for name, array in answers}
        return [known[port] for port in recipe.outputs.values()]

    return run
