"""Programs from Debian's packages that tests run; scripts/test puts them into .venv/bin."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Its path, beside this Python or on PATH; skips the test where there is none."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=folders)
    if found is None:
        pytest.skip(f"no `{name}`: scripts/test brings it where there is apt-get")
    return found
