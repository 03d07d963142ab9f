"""The server in a container: NVIDIA's image on the same served tree, with the same flags."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mmctl.errors import InputError, WorldError
from mmctl.server.flags import Addresses, Options, triton_flags
from mmctl.server.launch import Launch

INSIDE = Addresses(host="0.0.0.0", http=8000, grpc=8001, metrics=8002)
"""Where Triton listens in its container; only loopback ports of this machine lead there."""

MODELS = "/models"
SHM_SIZE = "1g"


def docker_launch(
    image: str,
    served: Path,
    addresses: Addresses,
    options: Options,
    env: Mapping[str, str] = os.environ,
) -> Launch:
    """Raises WorldError when there is no docker or no engine behind it."""
    require_engine(env)
    name = f"mmctl-{os.getpid()}-{secrets.token_hex(4)}"
    return Launch(
        argv=docker_argv(image, served, addresses, options, name=name),
        env={},
        release=release_of(image),
        cleanup=("docker", "rm", "--force", name),
    )


def docker_argv(
    image: str, served: Path, addresses: Addresses, options: Options, *, name: str
) -> tuple[str, ...]:
    """`docker run ...`: the tree read-only, the ports on loopback only."""
    published = [
        f"--publish={addresses.host}:{outside}:{inside}"
        for outside, inside in (
            (addresses.http, INSIDE.http),
            (addresses.grpc, INSIDE.grpc),
            (addresses.metrics, INSIDE.metrics),
        )
    ]
    return (
        *("docker", "run", "--rm", "--init", f"--name={name}"),
        f"--shm-size={SHM_SIZE}",
        f"--volume={served}:{MODELS}:ro",
        "--add-host=host.docker.internal:host-gateway",
        *published,
        image,
        "tritonserver",
        *triton_flags(MODELS, INSIDE, options),
    )


def otlp_url(port: int) -> str:
    """How the container reaches a collector of traces on this machine."""
    return f"http://host.docker.internal:{port}/v1/traces"


def require_engine(env: Mapping[str, str] = os.environ) -> None:
    """Raises WorldError when containers cannot be run here."""
    if shutil.which("docker", path=env.get("PATH")) is None:
        raise WorldError(
            "`docker` is not on PATH",
            hint="install a container engine, or leave `--docker` out to use the embedded Triton",
        )
    done = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise WorldError(
            f"`docker` has no engine to talk to: {lines[-1]}",
            hint="start the engine, or leave `--docker` out to use the embedded Triton",
        )


def release_of(image: str) -> str:
    """The release that an image's tag names. Raises InputError when it names none."""
    found = re.search(r":(\d\d\.\d\d)-", image)
    if found is None:
        raise InputError(
            f"`{image}`: its tag names no Triton release",
            hint="name an image such as `nvcr.io/nvidia/tritonserver:24.10-py3`",
        )
    return found[1]
