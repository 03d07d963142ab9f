"""Skipped tests: nothing to worry about on the machine of a user, and failures in CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.fixture
def program():
    pytest.skip("no `program`: scripts/test brings it where there is apt-get")

def test_package():
    pytest.importorskip("no_such_package")

@pytest.mark.skipif(True, reason="curl is not installed")
def test_mark():
    raise AssertionError

def test_program(program):
    raise AssertionError

@pytest.mark.xfail
def test_expected_failure():
    raise AssertionError

def test_data():
    pytest.skip("the data folder beside the checkout does not exist")

def test_larger_machine():
    pytest.skip("there may be a GPU here")
"""
MODULE = """
import pytest

pytest.importorskip("no_such_package")
"""
BROKEN = {"test_package": "FAILED", "test_mark": "ERROR", "test_program": "ERROR"}
SKIPPED_ALWAYS = {"test_data": "SKIPPED", "test_larger_machine": "SKIPPED"}


@pytest.mark.parametrize("ci", [False, True], ids=["at home", "in CI"])
def test_what_a_test_misses_is_an_error_in_ci_only(root: Path, tmp_path: Path, ci: bool) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text(MODULE)
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    alone = {"PYTHONPATH": str(root / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "skips", "--continue-on-collection-errors"],
        cwd=tmp_path,
        env={**env, **alone, **({"CI": "true"} if ci else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    broken = BROKEN if ci else dict.fromkeys(BROKEN, "SKIPPED")
    assert dict(re.findall(r"^test_all\.py::(\w+) (\w+)", done.stdout, re.MULTILINE)) == {
        **broken, **SKIPPED_ALWAYS, "test_expected_failure": "XFAIL",
    }  # fmt: skip
    assert ("ERROR collecting test_module.py" in done.stdout) is ci
    assert done.returncode == (1 if ci else 0)
