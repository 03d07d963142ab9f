"""How the file of a generated model is made of the files of other models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Port = tuple[str, str]
"""A tensor: a member and its output. Member "" means an input of the merged model."""


@dataclass(frozen=True, slots=True)
class MergeMember:
    """An ONNX model inside a merged one: `inputs` says what feeds each of its inputs."""

    name: str
    model: str
    inputs: Mapping[str, Port]


@dataclass(frozen=True, slots=True)
class MergeRecipe:
    """ONNX models joined to one. `members` follow what they read.

    `outputs` maps names to the tensors they show. `tolerance` is how far the merged model may be
    from its members, relative to the largest value of an output.
    """

    members: tuple[MergeMember, ...]
    outputs: Mapping[str, Port]
    tolerance: float

    @property
    def inputs(self) -> dict[str, tuple[Port, ...]]:
        """Each input with the members' inputs that it feeds, in order."""
        found: dict[str, tuple[Port, ...]] = {}
        for member in self.members:
            for key, (giver, tensor) in member.inputs.items():
                if not giver:
                    found[tensor] = (*found.get(tensor, ()), (member.name, key))
        return found

    @property
    def wiring(self) -> dict[str, Any]:
        """As JSON, what decides about the merged file; `recipe_of` reads it."""
        return {
            "members": [[m.name, m.model, _pairs(m.inputs)] for m in self.members],
            "outputs": _pairs(self.outputs),
        }


def recipe_of(wiring: Mapping[str, Any], tolerance: float) -> MergeRecipe:
    members = tuple(
        MergeMember(name, model, _ports(pairs)) for name, model, pairs in wiring["members"]
    )
    return MergeRecipe(members, _ports(wiring["outputs"]), tolerance)


def _pairs(ports: Mapping[str, Port]) -> list[list[Any]]:
    """Lists keep their order in JSON with sorted keys."""
    return [[name, list(port)] for name, port in ports.items()]


def _ports(pairs: list[list[Any]]) -> dict[str, Port]:
    return {name: (member, tensor) for name, (member, tensor) in pairs}
