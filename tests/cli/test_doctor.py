"""`mmctl doctor`: its text, its JSON and its exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mmctl.cli.app import main


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a Python that fits and without docker."""
    monkeypatch.setenv("MMCTL_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.delenv("UV_PYTHON_INSTALL_DIR", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))


@pytest.mark.usefixtures("bare")
def test_what_is_missing_is_said_with_the_ways_out_and_exit_code_3(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "doctor"]) == 3
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("missing  python "))
    assert lines[place + 1].lstrip().startswith("hint: install one (`uv python install 3.11`")


@pytest.mark.usefixtures("bare")
def test_json_says_the_same(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(workspace), "doctor", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["able"]) == (1, False)
    statuses = {check["name"]: check["status"] for check in answer["checks"]}
    assert statuses["python"] == statuses["libpython"] == "missing"
    assert statuses["docker"] == "note"
