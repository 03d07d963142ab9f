"""The shapes that TensorRT makes an engine for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mmctl.errors import InputError
from mmctl.tensors import Signature, TensorSpec
from mmctl.triton.options import Batching, ShapeRange

Edge = Literal["min", "opt", "max"]
EDGES: tuple[Edge, ...] = ("min", "opt", "max")

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """The shapes of one input, batch axis included: every size from `min` to `max` is served, and
    `opt` fastest.
    """

    input: str
    min: Shape
    opt: Shape
    max: Shape

    def at(self, edge: Edge) -> Shape:
        return {"min": self.min, "opt": self.opt, "max": self.max}[edge]


def profiles_for(
    signature: Signature, batching: Batching, shapes: Mapping[str, ShapeRange]
) -> tuple[Profile, ...]:
    """One profile for each input whose shape varies; none for a model of fixed shapes.

    Raises InputError for what no profile can cover, every input at once.
    """
    if problems := [text for spec in signature.inputs for text in _problems(spec, shapes)]:
        raise InputError(
            "; ".join(problems),
            hint="say the sizes under `shapes: {NAME: {min: [1], opt: [64], max: [256]}}`, "
            "without the batch axis",
        )
    return tuple(
        _profile(spec, signature.max_batch, batching, shapes)
        for spec in signature.inputs
        if signature.max_batch or -1 in spec.type.triton_dims
    )


def shape_argument(profiles: Iterable[Profile], edge: Edge) -> str:
    """`ids:1x16,mask:1x16`, as trtexec and ONNX Runtime's TensorRT provider take shapes."""
    return ",".join(f"{p.input}:{'x'.join(map(str, p.at(edge)))}" for p in profiles)


def _profile(
    spec: TensorSpec, max_batch: int, batching: Batching, shapes: Mapping[str, ShapeRange]
) -> Profile:
    dims = spec.type.triton_dims
    sizes = shapes.get(spec.name)
    low, usual, high = (sizes.min, sizes.opt, sizes.max) if sizes else (dims, dims, dims)
    best = max((size for size in batching.preferred if size <= max_batch), default=max_batch)
    if not max_batch:
        return Profile(spec.name, low, usual, high)
    return Profile(spec.name, (1, *low), (best, *usual), (max_batch, *high))


def _problems(spec: TensorSpec, shapes: Mapping[str, ShapeRange]) -> list[str]:
    dims = spec.type.triton_dims
    if spec.type.dtype.is_text:
        return [f"`{spec.name}` is text, which TensorRT does not have"]
    if spec.name not in shapes:
        return [f"`{spec.name}` has free axes {list(dims)}"] if -1 in dims else []
    given = shapes[spec.name].min, shapes[spec.name].opt, shapes[spec.name].max
    if all(_fits(shape, dims) for shape in given):
        return []
    return [f"the shapes of `{spec.name}` do not fit its axes {list(dims)}"]


def _fits(shape: Shape, dims: Shape) -> bool:
    return len(shape) == len(dims) and all(d in (-1, s) for s, d in zip(shape, dims, strict=True))
