"""`mmctl serve`, `stop` and `logs` without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmctl.cli.app import main


def test_stopping_nothing_is_no_error(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(workspace), "stop"]) == 0
    assert capsys.readouterr().out == "no server of `embedded` runs\n"


def test_there_is_no_log_before_the_first_server(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "logs"]) == 2
    assert "hint: run `mmctl serve` first" in capsys.readouterr().err


def test_the_log_of_a_server_that_has_ended_can_be_read_and_followed_to_its_end(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = workspace / ".mmctl" / "servers" / "embedded.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    assert main(["-C", str(workspace), "logs", "-n", "2", "--follow"]) == 0
    assert capsys.readouterr().out == "two\nthree\n"


def test_a_container_needs_an_engine(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    image = "nvcr.io/nvidia/tritonserver:24.10-py3"
    free = ["--http=0", "--grpc=0", "--metrics=0"]
    assert main(["-C", str(workspace), "serve", f"--docker={image}", "--tree=.", *free]) == 3
    assert "error: `docker` is not on PATH" in capsys.readouterr().err


def test_an_error_of_a_server_in_the_background_is_passed_on_with_its_exit_code(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\n")  # an engine that says yes to everything
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ["serve", "--docker=tritonserver:latest", "--tree=no/such/folder", "--detach"]
    assert main(["-C", str(workspace), *command]) == 2
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "there is no such folder to serve" in said
