"""What an ONNX file offers, by the `onnx` package alone: no ONNX Runtime, and no weights read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmctl.lint.onnx.graph import ELEMENTS, FixedState, Graph, Port, input_port
from mmctl.lint.onnx.wire import CutOff, TooLarge, without_weights

MAX_BYTES = 2**31 - 1
"""Protobuf reads no larger message, and so does ONNX Runtime."""

GIT_LFS = b"version https://git-lfs"

BUILT_IN_DOMAINS = frozenset(
    {
        "",
        "ai.onnx",
        "ai.onnx.ml",
        "ai.onnx.training",
        "ai.onnx.preview",
        "ai.onnx.preview.training",
        "com.microsoft",
        "com.microsoft.nchwc",
        "com.microsoft.experimental",
        "com.ms.internal.nhwc",
        "org.pytorch.aten",
    }
)
"""Domains whose operators ONNX Runtime has itself."""


class Unreadable(Exception):
    """The file is no ONNX model, or not a whole one."""


class NotRead(Exception):
    """The file may be right, and nothing is known of it; the text says why."""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Weights in another file: `size` bytes of it from `offset`, None where neither the tensor nor
    its entry tells. `found` is the length of that file, None where it is not there.
    """

    tensor: str
    location: str
    offset: int | None
    length: int | None
    size: int | None
    outside: bool
    """Whether the path leads out of the folder: then nobody looked."""
    found: int | None


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """`overridable` are the inputs with a default: initializers that are graph inputs too."""

    inputs: tuple[Port, ...]
    overridable: tuple[Port, ...]
    outputs: tuple[Port, ...]
    ir_version: int
    opsets: Mapping[str, int]
    external: tuple[ExternalData, ...]
    foreign: tuple[tuple[str, str], ...]
    """(domain, operator) of what neither ONNX Runtime nor the file itself defines."""
    batch_rows: Mapping[int, Mapping[str, int]]
    """Batch -> rows of each output for it, as far as the graph tells; tried with 2 and 3."""
    broken_by_batch: str
    """What a batch of 2 breaks and a single row does not, "" where nothing is known to."""
    fixed_states: tuple[FixedState, ...]


def read_onnx(path: Path) -> OnnxFile:
    """Raises Unreadable, NotRead, and OSError."""
    model = _load(path)
    graph = Graph(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    has_defaults = model.ir_version >= 4  # before, such initializers were constants
    return OnnxFile(
        inputs=tuple(input_port(v) for v in model.graph.input if v.name not in constants),
        overridable=tuple(
            input_port(v) for v in model.graph.input if has_defaults and v.name in constants
        ),
        outputs=tuple(graph.output_ports()),
        ir_version=model.ir_version,
        opsets={entry.domain: entry.version for entry in model.opset_import},
        external=tuple(_external_data(model, path.parent)),
        foreign=tuple(sorted(_foreign(model))),
        batch_rows=graph.rows(),
        broken_by_batch=graph.broken_by_batch(),
        fixed_states=tuple(graph.fixed_states()),
    )


def _load(path: Path) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise NotRead("the Python package `onnx` is not installed") from error
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("is no regular file")
    size = status.st_size
    if size > MAX_BYTES:
        raise Unreadable(
            f"has {size / 2**30:.1f} GiB, and ONNX Runtime reads 2 GiB at most in one file"
        )
    try:
        with path.open("rb") as file:
            content = without_weights(file, size)
        if content.startswith(GIT_LFS):
            raise Unreadable("is a pointer of Git LFS: the file itself was never fetched")
        model = onnx.ModelProto.FromString(content)
    except CutOff as error:
        raise Unreadable(f"is no whole ONNX file: it {error}") from error
    except TooLarge as error:
        raise NotRead("its graph alone is larger than 128 MiB") from error
    except (OSError, Unreadable):
        raise
    except Exception as error:  # Protobuf's own, whose classes are another room's
        raise Unreadable("is no ONNX file, or cut off: Protobuf cannot read it") from error
    if not model.HasField("graph"):
        raise Unreadable("is no ONNX file: it has no graph" if size else "is empty")
    return model


# ---------------------------------------------------------------- data in other files


def _external_data(model: Any, folder: Path) -> Iterator[ExternalData]:
    sizes: dict[str, tuple[bool, int | None]] = {}
    for tensor in _tensors(model.graph):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in sizes:
            sizes[location] = _length_inside(folder, location)
        outside, found = sizes[location]
        yield ExternalData(
            tensor.name,
            location,
            _whole_number(entries.get("offset", "0")),
            _whole_number(entries["length"]) if "length" in entries else None,
            _bytes_of(tensor),
            outside,
            found,
        )


def _tensors(graph: Any, depth: int = 0) -> Iterator[Any]:
    """Initializers of the graph and of the graphs in its nodes."""
    yield from graph.initializer
    if depth < 10:
        for node in graph.node:
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    if inner.node:
                        yield from _tensors(inner, depth + 1)


BITS = {
    "float": 32,
    "uint8": 8,
    "int8": 8,
    "uint16": 16,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "bool": 8,
    "float16": 16,
    "double": 64,
    "uint32": 32,
    "uint64": 64,
    "bfloat16": 16,
}


def _bytes_of(tensor: Any) -> int | None:
    bits = BITS.get(ELEMENTS.get(tensor.data_type, ""))
    if bits is None:
        return None
    count = 1
    for size in tensor.dims:
        count *= size
    return count * bits // 8


def _whole_number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _length_inside(folder: Path, location: str) -> tuple[bool, int | None]:
    """(whether the path leads out of the folder, its length or None). Opens nothing."""
    try:
        path, home = (folder / location).resolve(), folder.resolve()
        if os.path.isabs(location) or not path.is_relative_to(home):
            return True, None
        return False, path.stat().st_size if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name that no file can have; links in a circle
        return False, None


# ---------------------------------------------------------------- operators


def _foreign(model: Any) -> set[tuple[str, str]]:
    own = {(function.domain, function.name) for function in model.functions}
    nodes = [*_nodes(model.graph)]
    nodes += [node for function in model.functions for node in function.node]
    used: Sequence[tuple[str, str]] = [(node.domain, node.op_type) for node in nodes]
    return {
        (domain, operator)
        for domain, operator in used
        if domain not in BUILT_IN_DOMAINS and (domain, operator) not in own
    }


def _nodes(graph: Any, depth: int = 0) -> Iterator[Any]:
    for node in graph.node:
        yield node
        if depth < 10:
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    if inner.node:
                        yield from _nodes(inner, depth + 1)
