"""Inputs and outputs in a config.pbtxt, each by itself: C010 to C014, C017, C018.

What a config leaves out is only a mistake where nothing fills it in. Source of the rules:
ValidateModelIOConfig of Triton's core, 24.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from mmctl.diagnostics import Position, Rule, Severity, nearest
from mmctl.lint.configs.backends import fills_tensors
from mmctl.lint.repository import Model, Repository, names_of
from mmctl.lint.rules import Check, Mistake
from mmctl.lint.signatures import io_of
from mmctl.triton.onnx_backend import shape_text
from mmctl.triton.schema import word_of

FREE = -1
"""A dimension that varies."""


def _tensors(model: Model) -> Iterator[tuple[str, int, Any]]:
    for side in ("input", "output"):
        for number, tensor in enumerate(getattr(model.message, side)):
            yield side, number, tensor


def _called(side: str, number: int, tensor: Any) -> str:
    return f"{side} `{tensor.name}`" if tensor.name else f"{side} {number}"


def _right(dims: Iterable[int]) -> bool:
    return all(dim >= 1 or dim == FREE for dim in dims)


# ---------------------------------------------------------------- C010

THREE_DIMS = ("FORMAT_NHWC", "FORMAT_NCHW")


def _find_wrong_format(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, tensor in enumerate(model.message.input):
        word, dims = word_of(tensor, "format"), len(tensor.dims)
        if word in THREE_DIMS and dims not in (0, 3):
            yield Mistake(
                model.at("input", number, "format"),
                f"`{word}` needs 3 dims, and {_called('input', number, tensor)} has {dims}",
                "leave `format` out: Triton does nothing with it",
            )


WRONG_FORMAT = Check(
    Rule(
        "C010",
        "image format without three dims",
        "FORMAT_NCHW and FORMAT_NHWC need exactly 3 dims, batch axis left out. A model with a "
        "fixed [1,3,H,W] cannot have a format.",
        wrong='input { name: "img" data_type: TYPE_FP32 dims: [ 1, 3, 8, 8 ] format: FORMAT_NCHW }',
        right='input { name: "img" data_type: TYPE_FP32 dims: [ 1, 3, 8, 8 ] }',
    ),
    _find_wrong_format,
)

# ---------------------------------------------------------------- C011


def _find_wrong_dims(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for side, number, tensor in _tensors(model):
        called = _called(side, number, tensor)
        if not tensor.dims:
            hint = "write `dims: [ 1 ]`, and `reshape { shape: [ ] }` where the model takes scalars"
            yield _left_out(model, (side, number), f"{called} has no `dims`", hint)
        for place, dim in enumerate(tensor.dims):
            if dim < 1 and dim != FREE:
                yield Mistake(
                    model.at(side, number, "dims", place),
                    f"a dimension of {called} is {dim}: it must be an integer of 1 or more, or -1",
                    "write -1 for a dimension that varies",
                )


def _left_out(model: Model, place: tuple[str, int], message: str, hint: str) -> Mistake:
    if fills_tensors(model):
        message += ", and the model fills it in while it loads"
        return Mistake(model.at(*place), message, None, Severity.INFO)
    return Mistake(model.at(*place), message, hint)


WRONG_DIMS = Check(
    Rule(
        "C011",
        "wrong or missing dims",
        "Every input and output has at least one dimension, the batch axis left out; each is 1 or "
        "more, or -1 where it varies. One value for each row is `dims: [ 1 ]`. TensorRT, OpenVINO "
        "and TensorFlow models and a Python model with `auto_complete_config` may fill dims in.",
        wrong='input { name: "x" data_type: TYPE_FP32 dims: [ 0 ] }',
        right='input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }',
    ),
    _find_wrong_dims,
)

# ---------------------------------------------------------------- C012


def _find_wrong_reshape(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for side, number, tensor in _tensors(model):
        if not tensor.HasField("reshape") or not tensor.dims or not _right(tensor.dims):
            continue
        shape = tuple(tensor.reshape.shape)
        message = hint = None
        if not _right(shape):
            message = (
                f"the reshape {shape_text(shape)} of {_called(side, number, tensor)} has a "
                "dimension that is neither an integer of 1 or more nor -1"
            )
        elif not shape and model.message.max_batch_size == 0 and io_of(model).max_batch == 0:
            message = (
                f"{_called(side, number, tensor)} has an empty reshape, and a model that is "
                "non-batching (`max_batch_size: 0`) takes no scalar tensors"
            )
            hint = "leave `reshape` out, or give the model a batch axis"
        else:
            message = _difference(tuple(tensor.dims), shape, _called(side, number, tensor))
            hint = "dims and reshape hold the same elements; neither has the batch axis"
        if message:
            yield Mistake(model.at(side, number, "reshape"), message, hint)


def _difference(dims: Sequence[int], shape: Sequence[int], called: str) -> str | None:
    """Why one cannot be read as the other: the dims between two -1 must hold as many elements."""
    mine, theirs = _chunks(dims), _chunks(shape)
    what = f"the reshape {shape_text(shape)} of {called}"
    if len(mine) == len(theirs) == 1 and mine != theirs:
        sizes = f"{theirs[0]} and {mine[0]} elements"
        return f"{what} has another size than dims {shape_text(dims)}: {sizes}"
    if (len(mine) == 1) != (len(theirs) == 1):
        free = "reshape" if len(mine) == 1 else "dims"
        return f"{what} has another size than dims {shape_text(dims)}: only the {free} can vary"
    if len(mine) != len(theirs):
        return (
            f"{what} has another number of variable-size dimensions (-1) than dims "
            f"{shape_text(dims)}: {len(theirs) - 1}, not {len(mine) - 1}"
        )
    if mine != theirs:
        return f"{what} has another size than dims {shape_text(dims)} beside the -1"
    return None


def _chunks(dims: Sequence[int]) -> list[int]:
    """Elements before, between and after the dims that vary."""
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == FREE:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]


WRONG_RESHAPE = Check(
    Rule(
        "C012",
        "reshape that does not fit",
        "`reshape` is the shape that the model itself sees instead of dims. Both must have the "
        "same number of elements, -1 for -1 in the same order, and neither has the batch axis: a "
        "reshape cannot put a batch into a model with a fixed one; export that one again, or serve "
        "it with max_batch_size 0 and its full shape. An empty reshape (a scalar for each row) "
        "needs a batch axis.",
        wrong="dims: [ 3, 8, 8 ] reshape { shape: [ 2, 3, 8, 8 ] }",
        right="dims: [ 3, 8, 8 ] reshape { shape: [ 1, 3, 8, 8 ] }",
    ),
    _find_wrong_reshape,
)

# ---------------------------------------------------------------- C013


def _find_wrong_names(model: Model, _repository: Repository) -> Iterator[Mistake]:
    seen: dict[tuple[str, str], int] = {}
    for side, number, tensor in _tensors(model):
        if not tensor.name:
            yield Mistake(model.at(side, number), f"{side} {number} has no `name`")
            continue
        first = seen.setdefault((side, tensor.name), number)
        if first != number:
            line = model.at(side, first).line
            yield Mistake(
                model.at(side, number, "name"),
                f"there are two {side}s called `{tensor.name}`, the first in line {line}",
                "every tensor needs a name of its own: Triton keeps one of the two",
            )


WRONG_NAMES = Check(
    Rule(
        "C013",
        "two tensors of one name, or one without",
        "Inputs and outputs are told apart by their names. Triton takes two of one name without a "
        "word and serves one of them.",
        wrong='output [ { name: "y" ... }, { name: "y" ... } ]',
        right='output [ { name: "y" ... }, { name: "z" ... } ]',
    ),
    _find_wrong_names,
)

# ---------------------------------------------------------------- C014


def _find_no_type(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for side, number, tensor in _tensors(model):
        if tensor.data_type == 0:
            called = _called(side, number, tensor)
            hint = "write `data_type: TYPE_...`"
            yield _left_out(model, (side, number), f"{called} has no `data_type`", hint)


NO_TYPE = Check(
    Rule(
        "C014",
        "tensor without a type",
        "Every input and output has a `data_type`. TensorRT, OpenVINO and TensorFlow models and a "
        "Python model with `auto_complete_config` may fill it in; ONNX models fill in whole "
        "sections only.",
        wrong='input { name: "x" dims: [ 4 ] }',
        right='input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }',
    ),
    _find_no_type,
)

# ---------------------------------------------------------------- C017


def _find_tensorrt_fields(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for side, number, tensor in _tensors(model):
        called = _called(side, number, tensor)
        if model.backend == "tensorrt":
            if tensor.is_non_linear_format_io and len(tensor.dims) not in (0, 3):
                yield Mistake(
                    model.at(side, number, "is_non_linear_format_io"),
                    f"a non-linear format needs 3 dims, and {called} has {len(tensor.dims)}",
                )
            continue
        for field in ("is_shape_tensor", "is_non_linear_format_io"):
            if getattr(tensor, field):
                yield Mistake(
                    model.at(side, number, field),
                    f"`{field}` of {called} is for TensorRT engines only",
                    "leave it out",
                )


TENSORRT_FIELDS = Check(
    Rule(
        "C017",
        "field for TensorRT engines",
        "Shape tensors and non-linear formats exist in TensorRT engines only; a non-linear format "
        "needs 3 dims.",
        wrong='backend: "onnxruntime"\ninput { ... is_shape_tensor: true }',
        right='backend: "onnxruntime"\ninput { ... }',
    ),
    _find_tensorrt_fields,
)

# ---------------------------------------------------------------- C018


def _find_wrong_batch_tensors(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    for number, entry in enumerate(message.batch_input):
        yield from _find_wrong_sources(model, ("batch_input", number), entry)
        if word_of(entry, "data_type") not in ("TYPE_INT32", "TYPE_FP32"):
            yield Mistake(
                model.at("batch_input", number, "data_type"),
                "the data type of a batch input must be TYPE_INT32 or TYPE_FP32",
            )
    for number, entry in enumerate(message.batch_output):
        yield from _find_wrong_sources(model, ("batch_output", number), entry)
        yield from _find_wrong_targets(model, number, entry)


def _find_wrong_sources(model: Model, place: tuple[str, int], entry: Any) -> Iterator[Mistake]:
    known = names_of(model.message.input)
    if len(entry.source_input) != 1:
        yield Mistake(
            model.at(*place),
            f"`{word_of(entry, 'kind')}` expects 1 source input, got {len(entry.source_input)}",
            'write `source_input: "NAME"`, one input',
        )
    for number, source in enumerate(entry.source_input):
        if source not in known and known:
            at = model.at(*place, "source_input", number)
            yield Mistake(at, f"unknown source input `{source}`", nearest(source, known))


def _find_wrong_targets(model: Model, place: int, entry: Any) -> Iterator[Mistake]:
    known = names_of(model.message.output)
    for number, target in enumerate(entry.target_name):
        at: Position = model.at("batch_output", place, "target_name", number)
        if target not in known and known:
            yield Mistake(at, f"unknown target output `{target}`", nearest(target, known))
        elif target in entry.target_name[:number]:
            yield Mistake(at, f"the target output `{target}` stands here twice", "leave one out")


WRONG_BATCH_TENSORS = Check(
    Rule(
        "C018",
        "wrong batch_input or batch_output",
        "A batch input tells the model the sizes of the requests in a batch: it is made from one "
        "declared input and has the type TYPE_INT32 or TYPE_FP32. A batch output says by which "
        "input's shape declared outputs are cut into answers.",
        wrong='batch_input { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32 }',
        right='batch_input { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32\n'
        '  source_input: "x" }',
    ),
    _find_wrong_batch_tensors,
)

TENSOR_CHECKS: tuple[Check, ...] = (
    WRONG_FORMAT,
    WRONG_DIMS,
    WRONG_RESHAPE,
    WRONG_NAMES,
    NO_TYPE,
    TENSORRT_FIELDS,
    WRONG_BATCH_TENSORS,
)
