"""The Tritons that engines of a workspace are for."""

from __future__ import annotations

from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.lint.engines import EngineTarget
from mmctl.triton.releases import Release, parse_release, parse_version
from mmctl.workspace import Workspace

DEFAULT = "defaults"


def gpu_targets(workspace: Workspace) -> tuple[EngineTarget, ...]:
    """Targets of mmctl.yaml that have GPUs; where none does, the release of its defaults."""
    found = [_target(workspace, name) for name, t in sorted(workspace.targets.items()) if t.gpus]
    if found:
        return tuple(found)
    return (EngineTarget(DEFAULT, parse_release(workspace.defaults.release)),)


def gpu_releases(workspace: Workspace) -> tuple[Release, ...]:
    return tuple(target.release for target in gpu_targets(workspace))


def target_for(workspace: Workspace, name: str | None) -> EngineTarget:
    """The named target, or the only one with GPUs. Raises InputError when that is not clear."""
    if name is None:
        found = gpu_targets(workspace)
        if len({(target.release, target.tensorrt) for target in found}) > 1:
            names = ", ".join(f"`{target.name}`" for target in found)
            raise InputError(
                f"{names} have GPUs and different releases, and an engine is for one",
                hint="choose with `--target NAME`",
            )
        return found[0]
    if name not in workspace.targets:
        raise InputError(
            f"mmctl.yaml has no target `{name}`", hint=nearest(name, workspace.targets)
        )
    return _target(workspace, name)


def _target(workspace: Workspace, name: str) -> EngineTarget:
    target = workspace.target(name)
    said = parse_version(target.tensorrt) if target.tensorrt else None
    return EngineTarget(name, parse_release(workspace.release_of(name)), said)
