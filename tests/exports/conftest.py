"""Real exports: they need torch, and some the model packages that `mmctl fetch` brings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from model_folders import export_here as export_in_process
from model_folders import write_model

from mmctl.exporters.base import Exported
from mmctl.exporters.packages import require_fetched
from mmctl.workspace import Workspace, read_workspace

ExportHere = Callable[..., Exported]


@pytest.fixture
def export_here(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> ExportHere:
    """What the child process of an export does, in this one: torch is imported once for all."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def export(yaml: str, **files: str) -> Exported:
        space = write_model(workspace, "net", yaml, **files)
        return export_in_process(space, "net", workspace / "out")

    return export


@pytest.fixture
def fetched(root: Path, workspace: Path) -> Workspace:
    """An empty workspace with the model packages of the checkout."""
    checkout = read_workspace(root)
    require_fetched(checkout)
    (workspace / ".mmctl").mkdir()
    (workspace / ".mmctl" / "packages").symlink_to(checkout.packages)
    models = workspace / "model_repository"
    models.mkdir()
    (models / "packages.txt").write_bytes((checkout.models / "packages.txt").read_bytes())
    return read_workspace(workspace)
