"""What a build writes, and above all what it does not."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from model_folders import write_wheel

from mmctl.building.build import build
from mmctl.building.drift import find_drift
from mmctl.errors import InputError, InvalidFiles
from mmctl.triton.repository import Lock, read_lock
from mmctl.workspace import Workspace


def run(workspace: Workspace, *names: str) -> list[str]:
    said: list[str] = []
    build(workspace, names, said.append)
    return said


def lock_of(workspace: Workspace, model: str) -> Lock:
    lock = read_lock(workspace.models / model)
    assert lock is not None
    return lock


def times(root: Path) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in root.rglob("*")}


def edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_pipeline_becomes_a_model_and_one_for_each_step(small: Workspace) -> None:
    run(small)
    assert small.model_names() == ["echo", "twice", "twice__double"]
    assert (small.models / "twice__double" / "1" / "model.py").is_file()
    assert find_drift(small) == []


def test_a_second_build_writes_nothing(small: Workspace) -> None:
    run(small)
    before = times(small.models)
    assert run(small) == []
    assert times(small.models) == before


def test_an_edited_step_is_a_new_version_of_it_and_of_the_pipeline(small: Workspace) -> None:
    run(small)
    edit(small.pipelines / "twice" / "steps.py", "* 2", "+ x")
    run(small)
    assert lock_of(small, "twice__double").version == 2
    assert lock_of(small, "twice").version == 2
    manifest = json.loads((small.models / "twice" / "2" / "manifest.json").read_text())
    assert manifest["calls"] == {"twice__double": 2}


def test_going_back_gives_the_old_number_again(small: Workspace) -> None:
    run(small)
    edit(small.pipelines / "twice" / "steps.py", "* 2", "+ x")
    run(small)
    edit(small.pipelines / "twice" / "steps.py", "+ x", "* 2")
    run(small)
    assert lock_of(small, "twice").version == 1
    assert [version for version, _ in lock_of(small, "twice").history] == [2, 1]


def test_instances_and_batching_are_settings_and_no_new_version(small: Workspace) -> None:
    run(small)
    edit(small.pipelines / "twice" / "pipeline.yaml", "cpu: 2", "cpu: 3")
    assert find_drift(small) == [
        "model_repository/twice__double/config.pbtxt: differs from what would be generated"
    ]
    run(small)
    assert lock_of(small, "twice__double").version == 1
    assert "count: 3" in (small.models / "twice__double" / "config.pbtxt").read_text()


def test_a_comment_changes_nothing(small: Workspace) -> None:
    run(small)
    path = small.pipelines / "twice" / "pipeline.yaml"
    path.write_text(f"# why\n{path.read_text()}")
    assert run(small) == []


def test_a_step_that_is_gone_takes_its_folder_along(small: Workspace) -> None:
    run(small)
    edit(small.pipelines / "twice" / "pipeline.yaml", "  double:", "  triple:")
    edit(small.pipelines / "twice" / "pipeline.yaml", "double.y", "triple.y")
    assert "model_repository/twice__double: no pipeline makes it any more" in find_drift(small)
    run(small)
    assert small.model_names() == ["echo", "twice", "twice__triple"]


def test_a_folder_of_the_users_own_is_never_overwritten(small: Workspace) -> None:
    own = small.models / "twice__double"
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a folder that mmctl generated"):
        run(small)
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


def test_models_and_pipelines_share_one_name_space(small: Workspace) -> None:
    (small.models / "twice").mkdir()
    (small.models / "twice" / "config.pbtxt").write_text('name: "twice"\n')
    with pytest.raises(InputError, match="both a model and a pipeline"):
        run(small)


def test_a_circle_through_an_ensemble_of_the_users_is_found_before_a_server_starts(
    small: Workspace,
) -> None:
    """`twice` calls `echo`, an ensemble that calls `other`, a pipeline that calls `twice`."""
    config = small.models / "echo" / "config.pbtxt"
    edit(config, 'backend: "python"', 'platform: "ensemble"')
    with config.open("a") as file:
        file.write('ensemble_scheduling { step { model_name: "other" model_version: -1 } }\n')
    other = small.pipelines / "other" / "pipeline.yaml"
    other.parent.mkdir()
    other.write_text(
        'pipeline: other\ninputs: {x: "fp32[3]"}\nnodes:\n'
        "  a: {model: twice, inputs: {x: x}}\noutputs: {y: a.y}\n"
    )
    with pytest.raises(InvalidFiles) as error:
        run(small, "twice")
    [finding] = error.value.findings
    assert finding.code == "Y128"
    assert "echo" in finding.message
    assert (finding.path, finding.line) in {
        ("ensembles/twice/pipeline.yaml", 6),
        ("ensembles/other/pipeline.yaml", 4),
    }


def test_an_unknown_name_is_told_with_the_nearest(small: Workspace) -> None:
    with pytest.raises(InputError) as caught:
        run(small, "twise")
    assert caught.value.hint == "did you mean `twice`?"


def test_a_mistake_leaves_what_was_built_before(small: Workspace) -> None:
    run(small)
    before = times(small.models)
    edit(small.pipelines / "twice" / "pipeline.yaml", "double.y}", "double.z}")
    with pytest.raises(InvalidFiles, match=r"ensembles/twice/pipeline\.yaml:\d+:\d+: Y106"):
        run(small)
    assert times(small.models) == before


@pytest.mark.parametrize("file", ["config.pbtxt", "model.lock", ".mmctl.json"])
def test_a_committed_file_that_was_edited_by_hand_is_found(small: Workspace, file: str) -> None:
    run(small)
    path = small.models / "twice" / file
    path.write_text(path.read_text() + " ")
    assert find_drift(small) == [
        f"model_repository/twice/{file}: differs from what would be generated"
    ]


def test_a_missing_committed_file_is_found(small: Workspace) -> None:
    run(small)
    (small.models / "twice" / "config.pbtxt").unlink()
    assert find_drift(small) == ["model_repository/twice/config.pbtxt: missing"]


@pytest.fixture
def word_package(small: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hash of a file of a model package that can be fetched and that the step opens."""
    index = tmp_path / "index"
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    line = write_wheel(index, "some_words", {"words.txt": b"hello"})
    (small.models / "packages.txt").write_text(f"{line}\n")
    return sha256(b"hello").hexdigest()


def name_asset(workspace: Workspace, digest: str) -> None:
    (workspace.pipelines / "twice" / "assets.yaml").write_text(
        f'words.txt: {{file: "package:some_words/words.txt", sha256: "{digest}"}}\n'
    )


def test_a_file_of_a_package_is_in_the_version_that_opens_it(
    small: Workspace, word_package: str
) -> None:
    name_asset(small, word_package)
    run(small)
    assert (small.models / "twice__double" / "1" / "assets" / "words.txt").read_text() == "hello"


def test_a_file_of_a_package_with_another_hash_is_refused(
    small: Workspace, word_package: str
) -> None:
    name_asset(small, "0" * 64)
    with pytest.raises(InputError, match=r"has sha256 2cf24dba.*, its assets\.yaml says 0000"):
        run(small)
    assert not (small.models / "twice__double" / "1").exists()


KEPT = "double: {step: double, inputs: {x: x}, cache: {ttl_s: 60},"


def test_a_model_that_moves_takes_its_kept_answers_out_of_reach(small: Workspace) -> None:
    """They are found by its content, which plan.json says."""
    pipeline = small.pipelines / "twice"
    edit(pipeline / "pipeline.yaml", "double: {step: double, inputs: {x: x},", KEPT)
    plans = []
    for version in (1, 2):
        run(small)
        folder = small.models / "twice" / str(version)
        plans.append(json.loads((folder / "plan.json").read_text()))
        edit(pipeline / "steps.py", "x * 2" if version == 1 else "x + x", "x + x")
    (before, after) = (plan["digests"]["twice__double"] for plan in plans)
    assert before != after == lock_of(small, "twice__double").build_key
    assert [plan["pins"] for plan in plans] == [{"twice__double": 1}, {"twice__double": 2}]
    assert plans[0]["nodes"] == plans[1]["nodes"]


def test_answers_of_a_folder_of_ones_own_are_not_kept(small: Workspace) -> None:
    """Nobody knows when its content changes."""
    path = small.pipelines / "twice" / "pipeline.yaml"
    edit(path, "{model: echo, inputs: {x: double.y}}",
         "{model: echo, inputs: {x: double.y}, cache: {ttl_s: 60}}")  # fmt: skip
    with pytest.raises(InvalidFiles) as error:
        run(small)
    [finding] = error.value.findings
    assert finding.message.startswith("`echo.cache`: `echo` is a model of your own")
    assert (finding.line, finding.column) == (6, 46)
    assert finding.path == "ensembles/twice/pipeline.yaml"
