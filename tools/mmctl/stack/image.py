"""A Dockerfile that adds what steps import to NVIDIA's image. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mmctl.triton.releases import Release

STEP_PACKAGES = ("numpy>=1.26,<2", "pillow>=11,<14", "tokenizers>=0.21,<1")
"""What the shipped runner and the ready-made steps import. Ranges, because the Python in the image
is not the embedded server's: 3.10 in 24.10, for which the newest of these are not made. With numpy
2 the Python backend of Triton 24.10 empties every tensor.
"""

OURS = "mmctl"

DOCKERFILE = """\
# Written by `mmctl image`: NVIDIA's Triton with what the pipelines' steps import.
# The release is written here once; `docker build --build-arg TRITON_RELEASE=25.01` takes another.
ARG TRITON_RELEASE={release}
FROM nvcr.io/nvidia/tritonserver:${{TRITON_RELEASE}}-py3

COPY requirements/ /opt/mmctl/requirements/
# In images of Ubuntu 24.04 the system keeps its Python to itself; older pips ignore the variable.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir{files}
"""


def render_image(release: Release, requirements: Mapping[str, str]) -> dict[str, str]:
    """Dockerfile and requirement files by path; `requirements` are texts by folder of `ensembles`.

    pip gets all of them at once, so that pipelines that cannot live together fail when the image
    is built.
    """
    texts = {OURS: "".join(f"{package}\n" for package in STEP_PACKAGES), **requirements}
    files = "".join(f" \\\n    -r /opt/mmctl/requirements/{name}.txt" for name in sorted(texts))
    return {
        "Dockerfile": DOCKERFILE.format(release=release, files=files),
        **{f"requirements/{name}.txt": f"{_origin(name)}\n{texts[name]}" for name in sorted(texts)},
    }


def _origin(name: str) -> str:
    if name == OURS:
        return (
            "# Written by `mmctl image`: what the shipped runner and the ready-made steps import."
        )
    return f"# Written by `mmctl image` from ensembles/{name}/requirements.txt."
