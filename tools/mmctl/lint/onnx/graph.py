"""The tensors of an ONNX graph: their types, and their shapes as inference finds them.

ONNX's shape inference is not ONNX Runtime's. What is said here holds for both: a size is given
only where inference is sure of it, and an axis is called open only where the graph itself, tried
with different sizes, gives different ones. The rest is in `Port.unsure`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Dim = int | str | None
"""A size, the name of an open axis, or an open axis without a name."""

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the graph.

    `kind` is its type in ONNX Runtime's words (`tensor(float)`); `shape` has all axes, 0 stays 0,
    () is a scalar and None an unknown rank; `declared` is the shape that is written in the file.
    `unsure` are the open axes of which ONNX Runtime may know more.
    """

    name: str
    kind: str
    shape: Shape | None
    declared: Shape | None
    unsure: frozenset[int] = frozenset()

    @property
    def settled(self) -> bool:
        """Whether ONNX Runtime sees this very shape."""
        return self.shape is not None and not self.unsure


@dataclass(frozen=True, slots=True)
class FixedState:
    """A recurrent node whose first state is a constant for `batch` rows, and no other number."""

    node: str
    operator: str
    batch: int


# ---------------------------------------------------------------- types and shapes

ELEMENTS = {
    1: "float",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "double",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
}
"""Number of an element type in ONNX -> its name in ONNX Runtime."""


def kind_of(type_proto: Any) -> str:
    """As ONNX Runtime words it: `tensor(float)`, `seq(map(int64,tensor(float)))`."""
    match type_proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({ELEMENTS.get(type_proto.tensor_type.elem_type, 'unknown')})"
        case "sparse_tensor_type":
            kind = ELEMENTS.get(type_proto.sparse_tensor_type.elem_type, "unknown")
            return f"sparse_tensor({kind})"
        case "sequence_type":
            return f"seq({kind_of(type_proto.sequence_type.elem_type)})"
        case "map_type":
            key = ELEMENTS.get(type_proto.map_type.key_type, "unknown")
            return f"map({key},{kind_of(type_proto.map_type.value_type)})"
        case "optional_type":
            return f"optional({kind_of(type_proto.optional_type.elem_type)})"
    return "unknown"


def shape_of(type_proto: Any) -> Shape | None:
    """None where the rank is unknown, or there is no tensor."""
    tensor = type_proto.tensor_type
    if not type_proto.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    return tuple(_dim(dim) for dim in tensor.shape.dim)


def _dim(dim: Any) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    # Inference makes up such names for what it cannot tell.
    return None if dim.dim_param.startswith("unk__") else dim.dim_param or None


def input_port(value: Any) -> Port:
    """A graph input: its shape is what the file says."""
    shape = shape_of(value.type)
    return Port(value.name, kind_of(value.type), shape, shape)


# ---------------------------------------------------------------- what the graph yields

USUAL = 192
OTHER = 224
"""Sizes that open axes are tried with: large enough for windows and patches, and not equal."""


class Shapes:
    """The shapes of a graph's values after inference. `constants` are its initializers' own."""

    def __init__(self, graph: Any, constants: Mapping[str, Shape]) -> None:
        self._graph = graph
        self._constants = constants

    @cached_property
    def _outputs(self) -> Mapping[str, Any]:
        return {value.name: value.type for value in self._graph.output}

    @cached_property
    def _others(self) -> Mapping[str, Any]:
        values = (*self._graph.value_info, *self._graph.input)
        return {value.name: value.type for value in values}

    def of(self, name: str) -> Shape | None:
        """None where inference cannot tell."""
        found = self._outputs.get(name) or self._others.get(name)
        return self._constants.get(name) if found is None else shape_of(found)

    def size(self, name: str, axis: int) -> int | None:
        shape = self.of(name) or ()
        size = shape[axis] if axis < len(shape) else None
        return size if isinstance(size, int) else None


class Graph:
    """A model without its weights, which shape inference is run on. Trials are made when asked
    for, each once.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._written = {value.name: _copy(value.type) for value in model.graph.output}
        self._constants = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
        self._tried: dict[tuple[int, int], Shapes] = {}
        self._open = [
            (index, axis)
            for index, value in enumerate(model.graph.input)
            if value.name not in self._constants
            for axis, size in enumerate(shape_of(value.type) or ())
            if not isinstance(size, int)
        ]
        self._forget_stated_shapes()

    def _forget_stated_shapes(self) -> None:
        """What the file says of inner values and outputs may be wrong: inference finds it anew.

        Kept is what it says of results of operators that ONNX does not know.
        """
        graph = self._model.graph
        unknown = {
            name
            for node in graph.node
            if node.domain not in ("", "ai.onnx", "ai.onnx.ml")
            for name in node.output
        }
        given = {*self._constants, *(value.name for value in graph.input)}
        kept = [_copy(value) for value in graph.value_info if value.name in unknown]
        yielded = [_copy(value) for value in graph.output if value.name not in given]
        for value in yielded:
            if value.type.HasField("tensor_type") and value.name not in unknown:
                value.type.tensor_type.ClearField("shape")
        del graph.value_info[:], graph.output[:]
        graph.value_info.extend(kept)
        graph.output.extend(yielded)

    @cached_property
    def _sure(self) -> Shapes:
        """What every ONNX Runtime infers too: without following sizes through computed shapes."""
        inferred, _ = _infer(self._model)
        return Shapes((inferred or self._model).graph, self._constants)

    def output_ports(self) -> Iterator[Port]:
        for name, written in self._written.items():
            declared = shape_of(written)
            shape, disputed = _merge(declared, self._sure.of(name))
            opened = {i for i, size in enumerate(shape or ()) if not isinstance(size, int)}
            unsure = frozenset(i for i in opened if disputed or not self._moves(name, i))
            yield Port(name, kind_of(written), shape, declared, unsure)

    def _moves(self, name: str, axis: int) -> bool:
        """Whether the axis has different sizes for different inputs, so that nobody can fix it."""
        usual = self._trial(2, USUAL).size(name, axis)
        return usual is not None and any(
            self._trial(batch, size).size(name, axis) not in (usual, None)
            for batch, size in ((3, USUAL), (2, OTHER))
        )

    def rows(self) -> Mapping[int, Mapping[str, int]]:
        """Batch -> rows of each output for it, as far as the graph tells; tried with 2 and 3."""
        rows: dict[int, dict[str, int]] = {2: {}, 3: {}} if self._open else {}
        for batch, known in rows.items():
            for name in self._written:
                size = self._trial(batch, USUAL).size(name, 0)
                if size is not None:
                    known[name] = size
        return rows

    def broken_by_batch(self) -> str:
        """What a batch of 2 breaks and a single row does not, "" where nothing is known to."""
        if self._open:
            self._trial(2, USUAL)
        if not self._broken or _infer(self._sized(1, USUAL), strict_mode=True, data_prop=True)[1]:
            return ""  # a graph that is broken anyway, or beyond what ONNX can infer
        return self._broken

    def fixed_states(self) -> Iterator[FixedState]:
        for node in self._model.graph.node:
            if node.op_type not in ("RNN", "GRU", "LSTM") or node.domain not in ("", "ai.onnx"):
                continue
            layout = next((a.i for a in node.attribute if a.name == "layout"), 0)
            axis = 0 if layout else 1
            for name in filter(None, node.input[5:7]):
                batch = self._sure.size(name, axis)
                if batch is not None and self._follows_batch(node.input[0], axis):
                    named = next(filter(None, (node.name, *node.output)), "")
                    yield FixedState(named, node.op_type, batch)
                    break

    def _follows_batch(self, name: str, axis: int) -> bool:
        return all(self._trial(batch, USUAL).size(name, axis) == batch for batch in (2, 3))

    _broken = ""
    """What strict inference says of the first trial."""

    def _trial(self, batch: int, size: int) -> Shapes:
        """The shapes for inputs of `batch` rows whose other open axes are `size` long."""
        if (batch, size) not in self._tried:
            sized, inferred = self._sized(batch, size), None
            if (batch, size) == (2, USUAL):
                inferred, self._broken = _infer(sized, strict_mode=True, data_prop=True)
            if inferred is None:
                inferred, _ = _infer(sized, data_prop=True)
            self._tried[batch, size] = Shapes((inferred or sized).graph, self._constants)
        return self._tried[batch, size]

    def _sized(self, batch: int, size: int) -> Any:
        sized = _copy(self._model)
        for index, axis in self._open:
            dim = sized.graph.input[index].type.tensor_type.shape.dim[axis]
            dim.dim_value = batch if axis == 0 else size
        return sized


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _infer(model: Any, **options: bool) -> tuple[Any, str]:
    """The model with the shapes of its values, or None and what is wrong."""
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model.SerializeToString(), **options), ""
    except Exception as error:  # noqa: BLE001 - its C++ code raises whatever a broken model leads to
        return None, _first_cause(str(error))


def _first_cause(text: str) -> str:
    """`Concat: dimensions differ` out of what shape inference says."""
    found = re.search(r"op_type:(\w+).*?\[\w+Error\] ([^\n]*)", text, re.DOTALL)
    return (f"{found[1]}: {found[2]}" if found else text.strip() or "unknown")[:200]


def _merge(declared: Shape | None, inferred: Shape | None) -> tuple[Shape | None, bool]:
    """As ONNX Runtime joins what a file says with what it infers; True where they disagree."""
    if declared is None or inferred is None:
        return (declared if inferred is None else inferred), False
    if len(declared) != len(inferred):
        return None, True
    disputed = any(
        isinstance(said, int) and isinstance(size, int) and said != size
        for said, size in zip(declared, inferred, strict=True)
    )
    if disputed:
        return tuple(s if s == i else None for s, i in zip(declared, inferred, strict=True)), True
    return tuple(
        size if isinstance(size, int) or said is None else said
        for said, size in zip(declared, inferred, strict=True)
    ), False
