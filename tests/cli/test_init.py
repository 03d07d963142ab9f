"""`mmctl init` writes a workspace that is right from the start, and never into another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmctl.cli.app import main


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def test_a_new_folder_gets_a_workspace(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    assert {
        "mmctl.yaml",
        ".gitignore",
        "model_repository/urgency/model.yaml",
        "ensembles/triage/pipeline.yaml",
        "ensembles/triage/steps.py",
        "ensembles/triage/samples/outage.json",
    } <= files(tmp_path / "new")


def test_the_current_folder_stays_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    assert main(["init", "."]) == 0
    assert tmp_path.stat().st_ino == before
    assert (tmp_path / "mmctl.yaml").is_file()


def test_a_folder_with_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    assert main(["init", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert files(tmp_path) == {"thesis.tex"}
