"""Which Python can run inside Triton, on machines that have this or that."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mmctl.errors import WorldError
from mmctl.server.pythons import Unusable, find_python, inspect_python


def fake_python(
    path: Path, version: str, *, shared: bool = True, implementation: str = "CPython"
) -> Path:
    """A program that answers as a Python of that version would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    library = path.parent.parent / "lib"
    if shared:
        library.mkdir(exist_ok=True)
        (library / f"libpython{version.rpartition('.')[0]}.so.1.0").touch()
    answer = {
        "implementation": implementation,
        "version": version,
        "path": str(path),
        "folders": [None, str(library)],
    }
    path.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a machine with nothing but the Python 3.13 that runs mmctl."""
    own = fake_python(tmp_path / "own" / "bin" / "python3", "3.13.0")
    monkeypatch.setattr(sys, "executable", str(own))
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("bin/python3.11", id="on PATH"),
        pytest.param("home/.pyenv/versions/3.11.9/bin/python3.11", id="of pyenv"),
        pytest.param(
            "home/.local/share/uv/python/cpython-3.11.9-linux-x86_64-gnu/bin/python3.11", id="of uv"
        ),
    ],
)
def test_a_fitting_python_is_found(bare: dict[str, str], tmp_path: Path, place: str) -> None:
    path = fake_python(tmp_path / place, "3.11.9")
    found = find_python(env=bare)
    assert (found.path, found.version, found.minor) == (path, "3.11.9", "3.11")
    assert (found.libpython / "libpython3.11.so.1.0").exists()


def test_the_version_that_was_measured_is_preferred(bare: dict[str, str], tmp_path: Path) -> None:
    fake_python(tmp_path / "bin" / "python3.12", "3.12.1")
    assert find_python(env=bare).version == "3.12.1"
    fake_python(tmp_path / "home/.pyenv/versions/3.11.9/bin/python3.11", "3.11.9")
    assert find_python(env=bare).version == "3.11.9"


def test_one_without_its_library_is_passed_over(bare: dict[str, str], tmp_path: Path) -> None:
    fake_python(tmp_path / "bin" / "python3.11", "3.11.2", shared=False)
    fake_python(tmp_path / "home/.pyenv/versions/3.12.1/bin/python3.12", "3.12.1")
    assert find_python(env=bare).version == "3.12.1"


def test_a_machine_with_only_3_13_gets_one_message_with_the_ways_out(bare: dict[str, str]) -> None:
    with pytest.raises(WorldError) as error:
        find_python(env=bare)
    assert error.value.exit_code == 3
    assert "needs CPython 3.11 or 3.12 with a shared libpython" in error.value.message
    assert "it is CPython 3.13.0" in error.value.message
    assert error.value.hint is not None
    for way in ("uv python install", "pyenv install", "apt install", "--docker", "--target"):
        assert way in error.value.hint


def test_a_machine_without_libpython_is_told_the_package(
    bare: dict[str, str], tmp_path: Path
) -> None:
    fake_python(tmp_path / "bin" / "python3.11", "3.11.2", shared=False)
    with pytest.raises(WorldError, match=r"package `libpython3\.11`"):
        find_python(env=bare)


@pytest.mark.parametrize(
    ("version", "implementation", "reason"),
    [
        pytest.param("3.10.4", "CPython", "it is CPython 3.10.4", id="too old"),
        pytest.param("3.13.0", "CPython", "it is CPython 3.13.0", id="too new"),
        pytest.param("3.11.5", "PyPy", "it is PyPy 3.11.5", id="of another kind"),
    ],
)
def test_a_named_python_that_does_not_fit_says_why(
    tmp_path: Path, version: str, implementation: str, reason: str
) -> None:
    path = fake_python(tmp_path / "bin" / "python3", version, implementation=implementation)
    assert inspect_python(path) == Unusable(path, reason)


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho no json\n", None])
def test_what_does_not_run_is_not_a_python(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "python"
    if text:
        path.write_text(text)
        path.chmod(0o755)
    assert inspect_python(path) == Unusable(path, "it does not run")
