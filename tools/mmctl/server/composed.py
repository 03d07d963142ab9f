"""The server that docker-compose.yml describes: where it answers, what it reads, its key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmctl.documents import parse_document
from mmctl.errors import InputError
from mmctl.files import read_text
from mmctl.server.access import HEADER
from mmctl.server.docker import INSIDE, MODELS

TARGET = "compose"
"""The name of the target, unless mmctl.yaml gives it to another."""
COMPOSE = "docker-compose.yml"
PRIVATE = ".env"
SERVICE = "triton"

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}")
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Composed:
    """`grpc` and `http` as host:port on this machine; `served` is the folder that is mounted."""

    grpc: str
    http: str
    served: Path
    key: str = field(default="", repr=False)


def read_composed(root: Path, env: Mapping[str, str] = os.environ) -> Composed:
    """What a workspace's docker-compose.yml says, with its .env; `env` goes before that, as for
    docker compose. Raises InputError without one that mmctl has written.
    """
    path = root / COMPOSE
    if not path.is_file():
        raise InputError(f"{path}: there is none", hint="run `mmctl stack`")
    private = root / PRIVATE
    pairs = _ASSIGNMENT.findall(read_text(private)) if private.is_file() else []
    said = {name: value.strip("\"'") for name, value in pairs}
    return parse_composed(read_text(path), root, {**said, **env})


def parse_composed(text: str, root: Path, values: Mapping[str, str]) -> Composed:
    """Raises InputError for a file without a server like the one that mmctl writes."""
    data: Any = parse_document(text, COMPOSE).data
    try:
        service = data["services"][SERVICE]
        ports = [_filled(port, values) for port in service["ports"]]
        volumes = [_filled(volume, values) for volume in service["volumes"]]
        command = [_filled(word, values) for word in service["command"]]
        served = root / _mounted(volumes)
        return Composed(
            _published(ports, INSIDE.grpc), _published(ports, INSIDE.http), served, _key(command)
        )
    except (KeyError, TypeError, StopIteration):
        raise InputError(
            f"{COMPOSE}: has no service `{SERVICE}` as mmctl writes it",
            hint="run `mmctl stack`, or name the server as a target of mmctl.yaml",
        ) from None


def _filled(text: str, values: Mapping[str, str]) -> str:
    """With the values of variables, as docker compose puts them in."""
    return _VARIABLE.sub(lambda found: values.get(found[1]) or found[2] or "", text)


def _published(ports: Iterable[str], inside: int) -> str:
    return next(port.removesuffix(f":{inside}") for port in ports if port.endswith(f":{inside}"))


def _mounted(volumes: Iterable[str]) -> str:
    mark = f":{MODELS}"
    return next(volume.rpartition(mark)[0] for volume in volumes if mark in volume)


def _key(command: Iterable[str]) -> str:
    """Empty for a server that is steered without one."""
    found = (word.partition(f":{HEADER}=")[2] for word in command if "restricted" in word)
    return next(found, "")
