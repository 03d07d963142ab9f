"""The Dockerfile and the packages that it adds."""

from __future__ import annotations

import re

import pytest

from mmctl.stack.image import STEP_PACKAGES, render_image
from mmctl.triton.releases import parse_release

ALONE = r"""# Written by `mmctl image`: NVIDIA's Triton with what the pipelines' steps import.
# The release is written here once; `docker build --build-arg TRITON_RELEASE=25.01` takes another.
ARG TRITON_RELEASE=24.10
FROM nvcr.io/nvidia/tritonserver:${TRITON_RELEASE}-py3

COPY requirements/ /opt/mmctl/requirements/
# In images of Ubuntu 24.04 the system keeps its Python to itself; older pips ignore the variable.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir \
    -r /opt/mmctl/requirements/mmctl.txt
"""


def test_without_requirements_there_are_those_of_the_ready_made_steps() -> None:
    files = render_image(parse_release("24.10"), {})
    assert files["Dockerfile"] == ALONE
    assert list(files) == ["Dockerfile", "requirements/mmctl.txt"]
    assert files["requirements/mmctl.txt"].splitlines()[1:] == list(STEP_PACKAGES)


def test_pip_gets_the_requirements_of_all_pipelines_at_once_and_as_they_are() -> None:
    given = {"b": "six==1.16.0  # hash\n--extra-index-url https://x\n", "a": "attrs\n"}
    files = render_image(parse_release("25.01"), given)
    assert files["requirements/b.txt"].endswith("requirements.txt.\n" + given["b"])
    install = files["Dockerfile"].partition("pip install")[2]
    assert re.findall(r"-r \S+/(\w+)\.txt", install) == ["a", "b", "mmctl"]
    assert install.count("\n") == install.count(" \\\n") + 1, "it is one command"


def test_the_release_is_written_once() -> None:
    files = render_image(parse_release("25.03"), {"a": "attrs\n"})
    assert "".join(files.values()).count("25.03") == 1


@pytest.mark.parametrize("package", STEP_PACKAGES)
def test_packages_of_ours_are_ranges_that_every_image_can_meet(package: str) -> None:
    """Python 3.10 in 24.10, 3.12 later: no single version serves both."""
    assert re.fullmatch(r"[a-z]+>=[\d.]+,<[\d.]+", package)
