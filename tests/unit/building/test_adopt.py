"""Adopting is all or nothing: what goes wrong after the plan leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_folders import snapshot

from mmctl.building.adopt import adopt, plan_adoption
from mmctl.errors import WorldError
from mmctl.workspace import read_workspace

ECHO = """\
backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""
FLOW = """\
platform: "ensemble"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
ensemble_scheduling {
  step {
    model_name: "echo"
    model_version: -1
    input_map { key: "x" value: "x" }
    output_map { key: "y" value: "y" }
  }
}
"""


def write(folder: Path) -> Path:
    for name, config in {"echo": ECHO, "flow": FLOW, "other": FLOW}.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    return folder


def state(root: Path) -> dict[str, object]:
    """All folders, and files with their times; the private state apart."""
    folders = {p.relative_to(root).as_posix(): None for p in root.rglob("*") if p.is_dir()}
    found = {**folders, **snapshot(root)}
    return {path: what for path, what in found.items() if not path.startswith(".mmctl")}


def say_nothing(_line: str) -> None:
    pass


@pytest.mark.parametrize("place", ["model_repository", "elsewhere"])
def test_an_interrupt_in_the_middle_leaves_everything_as_it_was(
    workspace: Path, place: str
) -> None:
    """It comes when the first pipeline is written and the second is not."""
    repository = write(workspace / place)
    before = state(workspace)
    plan = plan_adoption(read_workspace(workspace), repository, [])

    def interrupt(_line: str) -> None:
        assert (workspace / "model_repository" / "other" / "model.lock").is_file()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adopt(read_workspace(workspace), plan, interrupt)
    assert state(workspace) == before


@pytest.mark.parametrize("model", ["flow", "echo"])
def test_a_config_that_changed_since_the_plan_was_shown_stops_it(
    workspace: Path, model: str
) -> None:
    repository = write(workspace / "model_repository")
    plan = plan_adoption(read_workspace(workspace), repository, [])
    config = repository / model / "config.pbtxt"
    config.write_text(config.read_text().replace("[ 3 ]", "[ -1 ]"))
    before = state(workspace)
    with pytest.raises(WorldError, match="changed while the plan was shown"):
        adopt(read_workspace(workspace), plan, say_nothing)
    assert state(workspace) == before


def test_it_waits_for_nobody_and_leaves_no_folder_of_its_own(workspace: Path) -> None:
    repository = write(workspace / "model_repository")
    plan = plan_adoption(read_workspace(workspace), repository, [])
    adopt(read_workspace(workspace), plan, say_nothing)
    assert sorted(path.name for path in repository.iterdir()) == ["echo", "flow", "other"]
