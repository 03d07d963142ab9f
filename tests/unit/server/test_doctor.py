"""What doctor says of machines that lack this or that."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from mmctl.server.doctor import PORTS, Check, examine
from mmctl.server.ports import HOST
from mmctl.workspace import read_workspace


@pytest.fixture
def look(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a machine where nothing lies where it is looked for."""
    monkeypatch.setenv("MMCTL_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}


def named(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_machine_without_a_python_lacks_it_and_its_library(
    workspace: Path, look: dict[str, str]
) -> None:
    checks = named(examine(read_workspace(workspace), look))
    for name in ("python", "libpython"):
        assert checks[name].status == "missing"
        assert "uv python install" in (checks[name].hint or "")
    assert checks["runtime"].status == "note"
    assert checks["docker"].status == "note"


def test_a_python_without_its_library_is_told_the_package(
    workspace: Path, look: dict[str, str], tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python3.11"
    python.parent.mkdir()
    answer = '{"implementation": "CPython", "version": "3.11.2", "path": "", "folders": []}'
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(0o755)
    checks = named(examine(read_workspace(workspace), look))
    assert checks["python"].status == "ok"
    assert checks["libpython"].status == "missing"
    assert "package `libpython3.11`" in checks["libpython"].message


def test_shared_memory_that_is_not_there_is_missing(
    workspace: Path, look: dict[str, str], tmp_path: Path
) -> None:
    checks = named(examine(read_workspace(workspace), look, shm=tmp_path / "no" / "shm"))
    assert checks["shm"].status == "missing"
    assert "--shm-size" in (checks["shm"].hint or "")


def test_a_port_in_use_is_a_note_because_another_can_be_given(
    workspace: Path, look: dict[str, str]
) -> None:
    name, port = PORTS[0]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, port))
            taken.listen()
        except OSError:
            pass  # somebody has it already, which is all that is wanted
        check = named(examine(read_workspace(workspace), look))["ports"]
    assert check.status == "note"
    assert f"port {port}" in check.message
    assert f"--{name} N" in (check.hint or "")


@pytest.mark.skipif(not os.path.exists("/dev/shm"), reason="no /dev/shm here")
def test_every_check_has_something_to_say(workspace: Path, look: dict[str, str]) -> None:
    checks = examine(read_workspace(workspace), look)
    assert [check.name for check in checks] == [
        *("architecture", "glibc", "python", "libpython", "installer"),
        *("disk", "shm", "ports", "runtime", "docker", "onnxruntime"),
    ]
    assert all(check.message for check in checks)
    assert all(check.hint for check in checks if check.status == "missing")
