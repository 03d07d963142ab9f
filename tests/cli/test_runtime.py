"""`mmctl runtime`: what it says where nothing can be installed, and where nothing is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from mmctl.cli.app import main


@pytest.fixture
def only_3_13(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose one Python is 3.13; the path of it."""
    python = tmp_path / "python3"
    answer = {"implementation": "CPython", "version": "3.13.0", "path": "", "folders": []}
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    monkeypatch.setenv("MMCTL_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.delenv("UV_PYTHON_INSTALL_DIR", raising=False)
    monkeypatch.setattr(sys, "executable", str(python))
    return python


@pytest.mark.parametrize("command", [["runtime", "install"], ["serve", "--tree=."]])
def test_a_machine_with_only_3_13_gets_one_message_and_exit_code_3(
    only_3_13: Path,
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    assert main(["-C", str(workspace), *command]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        "error: the embedded Triton needs CPython 3.11 or 3.12 with a shared"
    )
    assert f"{only_3_13}: it is CPython 3.13.0" in said.err
    assert said.err.count("hint: ") == 1
    assert not Path(os.environ["MMCTL_RUNTIME"]).exists()


def test_a_named_python_that_does_not_fit_is_refused(
    only_3_13: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "runtime", "install", f"--python={only_3_13}"]) == 3
    assert "it is CPython 3.13.0" in capsys.readouterr().err


def test_an_absent_runtime_is_a_no_to_ask_for_and_nothing_to_remove(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MMCTL_RUNTIME", raising=False)
    assert main(["-C", str(workspace), "runtime", "info", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "state": "absent",
        "root": str(workspace / ".mmctl" / "runtime"),
    }
    assert main(["-C", str(workspace), "runtime", "remove"]) == 0
    assert "there is none" in capsys.readouterr().out


@pytest.mark.usefixtures("only_3_13")
def test_a_place_that_cannot_be_written_is_named(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "file").touch()
    monkeypatch.setenv("MMCTL_RUNTIME", str(workspace / "file" / "runtime"))
    assert main(["-C", str(workspace), "runtime", "install"]) == 3
    assert f"error: {workspace / 'file'}" in capsys.readouterr().err
