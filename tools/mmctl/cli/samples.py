"""The samples that a command sends: a pipeline's own, or those in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mmctl.diagnostics import nearest
from mmctl.errors import InputError

if TYPE_CHECKING:
    from mmctl.client.samples import Sample
    from mmctl.workspace import Workspace


def samples_of(
    workspace: Workspace,
    name: str,
    folder: Path | None = None,
    *,
    models: bool = True,
    option: bool = True,
) -> list[Sample]:
    """Those in `folder`, else those of a pipeline, or with `models` of a model, too. `option`: the
    command has `--samples`. Raises InputError where there are none.
    """
    from mmctl.client.samples import read_samples

    if folder is None:
        known = [*workspace.pipeline_names(), *(workspace.model_names() if models else ())]
        if name not in known:
            kinds = "pipeline or model" if models else "pipeline"
            raise InputError(f"no {kinds} `{name}`", hint=nearest(name, known))
        folder = workspace.pipelines / name / "samples"
    if samples := read_samples(folder):
        return samples
    instead = "; or pass `--samples`" if option else ""
    raise InputError(
        f"{workspace.shown(folder)}: no samples, so there is nothing to send",
        hint=f"write {workspace.shown(folder)}/NAME.json, one request each{instead}",
    )
