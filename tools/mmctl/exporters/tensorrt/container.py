"""The build in a container of the image that serves: its TensorRT is the server's by nature."""

from __future__ import annotations

from mmctl.exporters.tensorrt.arguments import trtexec_argv
from mmctl.exporters.tensorrt.spec import BuildSpec
from mmctl.triton.releases import Release

IMAGE = "nvcr.io/nvidia/tritonserver:{release}-py3"
TRTEXEC = "/usr/src/tensorrt/bin/trtexec"
INSIDE = "/engine"


def image_of(release: Release) -> str:
    return IMAGE.format(release=release)


def container_argv(
    spec: BuildSpec, folder: str, *, engine: str = "docker", user: str = ""
) -> tuple[str, ...]:
    """`folder` holds the ONNX file and gets the plan; `user` is `uid:gid`, so that it is theirs."""
    return (
        *(engine, "run", "--rm", "--gpus=all"),
        *((f"--user={user}",) if user else ()),
        f"--volume={folder}:{INSIDE}",
        image_of(spec.target.release),
        *trtexec_argv(spec, TRTEXEC, INSIDE),
    )
