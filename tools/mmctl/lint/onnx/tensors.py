"""What a config and its ONNX file say of each tensor: M001 to M004, M010 and M014.

Configs are judged as Triton completes them. Where ONNX Runtime may know more of an output than the
file tells, a finding says so, or there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mmctl.diagnostics import Position, Rule, counted, nearest
from mmctl.lint.completion import tensors
from mmctl.lint.onnx.fit import (
    Fit,
    each_version,
    misfits_of,
    moved_axis,
    other_rows,
    quoted,
    shown,
)
from mmctl.lint.onnx.graph import Port
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.onnx_backend import (
    MODEL_TYPES,
    LoadError,
    check_controls,
    check_count,
    check_input,
)
from mmctl.triton.releases import Release

BF16_SINCE = Release(26, 1)
"""The backend learned BF16 inputs and outputs in 2026."""

# ---------------------------------------------------------------- M001


def _find_batch_axis(fit: Fit) -> Iterator[Mistake]:
    yield from misfits_of("M001")(fit)
    for port, _, _ in other_rows(fit):
        if hint := moved_axis(fit, port):
            text = f"output `{port.name}` is {shown(port.shape)} in {fit.name}, and its first axis "
            yield Mistake(fit.at("output", port.name, "dims"), f"{text}is not the batch", hint)


BATCH_AXIS = Check(
    Rule(
        "M001",
        "batch axis where Triton has none, or two",
        "With max_batch_size above 0 the first axis of every input and output is the batch: it "
        "must be open in the ONNX file, and dims leave it out. A model with a fixed first axis is "
        "served with max_batch_size 0, and dims then have all axes.",
        wrong="max_batch_size: 8  # model.onnx: ids [N,16]\n"
        'input [ { name: "ids" data_type: TYPE_INT64 dims: [ -1, 16 ] } ]',
        right='max_batch_size: 8\ninput [ { name: "ids" data_type: TYPE_INT64 dims: [ 16 ] } ]',
    ),
    each_version(_find_batch_axis),
)

# ---------------------------------------------------------------- M002


SHAPE = Check(
    Rule(
        "M002",
        "shape other than in the ONNX file",
        "Inputs: a size that the model fixes must be the same in the config; one that it leaves "
        "open may be anything. Outputs must be equal, -1 for -1. The shapes are those that ONNX "
        "Runtime infers, which can say more than the file.",
        wrong='output [ { name: "y" data_type: TYPE_FP32 dims: [ -1, 5 ] } ]  # file: [N,6,5]',
        right='output [ { name: "y" data_type: TYPE_FP32 dims: [ 6, 5 ] } ]',
    ),
    each_version(misfits_of("M002")),
)

# ---------------------------------------------------------------- M003


def _find_types(fit: Fit) -> Iterator[Mistake]:
    for side, tensor, port in fit.pairs:
        served = MODEL_TYPES.get(port.kind)
        if served is not None and tensor.dtype not in (served, "TYPE_INVALID"):
            yield Mistake(
                fit.at(side, tensor.name, "data_type"),
                f"{side} `{tensor.name}` is {served} in {fit.name}, and {tensor.dtype} in the "
                "config",
                f"write `data_type: {served}`",
            )


TYPE = Check(
    Rule(
        "M003",
        "type other than in the ONNX file",
        "Triton converts nothing: the config has the type that the ONNX file has.",
        wrong="data_type: TYPE_FP32  # model.onnx: int64",
        right="data_type: TYPE_INT64",
    ),
    each_version(_find_types),
)

# ---------------------------------------------------------------- M004


def _find_names(fit: Fit) -> Iterator[Mistake]:
    outputs = fit.ports["output"]
    for tensor in fit.config.outputs:
        if tensor.name not in outputs:
            yield Mistake(
                fit.at("output", tensor.name, "name"),
                f"output `{tensor.name}` is not in {fit.name}, which has {quoted(outputs)}",
                nearest(tensor.name, outputs),
            )
    if fit.done.inputs_known:
        yield from _unlike_inputs(fit)


def _unlike_inputs(fit: Fit) -> Iterator[Mistake]:
    inputs, given = fit.ports["input"], _given_inputs(fit)
    unknown = [tensor for tensor in fit.config.inputs if tensor.name not in inputs]
    known = frozenset(given)
    missing = [port.name for port in fit.file.inputs if port.name not in known]
    names = quoted(port.name for port in fit.file.inputs)
    count = f"{fit.name} has {counted(len(fit.file.inputs), 'input')}"
    count += f", {names}, and the config has {len(given)}"
    for tensor in unknown:
        yield Mistake(
            fit.at("input", tensor.name, "name"),
            f"input `{tensor.name}` is not in the model: {count}",
            nearest(tensor.name, missing)
            or "leave it out: exporters drop inputs that the graph does not use",
        )
    if len(missing) > len(unknown):
        text = f"{count}: {quoted(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield Mistake(fit.model.at("input"), text, "declare every input of the ONNX file")
    wrong = [*_wrongly_optional(fit)]
    yield from wrong
    if not (unknown or missing or wrong) and all(c.name in inputs for c in fit.config.controls):
        try:
            check_count(fit.config, len(fit.file.inputs))
        except LoadError:
            text = f"{count}: some are given twice, as a control or state too"
            yield Mistake(fit.model.at("input"), text, "declare each input in one place")


def _given_inputs(fit: Fit) -> list[str]:
    """The tensors of the model that a request, or Triton itself, fills."""
    message = fit.model.message
    return [
        *(tensor.name for tensor in fit.config.inputs),
        *(name for entry in message.batch_input for name in entry.target_name),
        *(entry.name for entry in message.sequence_batching.control_input),
        *(entry.input_name for entry in message.sequence_batching.state),
    ]


def _wrongly_optional(fit: Fit) -> Iterator[Mistake]:
    defaults = {port.name for port in fit.file.overridable}
    for tensor in fit.config.inputs:
        if tensor.name not in fit.ports["input"]:
            continue
        where = f"input `{tensor.name}`"
        if tensor.name in defaults and not tensor.optional:
            yield Mistake(
                fit.at("input", tensor.name),
                f"{where} has a default in {fit.name}, and is not optional in the config",
                "write `optional: true` in it, or leave the input out",
            )
        elif tensor.name not in defaults and tensor.optional:
            yield Mistake(
                fit.at("input", tensor.name),
                f"{where} is optional, and has no default in {fit.name}",
                "leave `optional` out: callers must send it",
            )


NAME = Check(
    Rule(
        "M004",
        "tensor that is not in the ONNX file, or not in the config",
        "Names are those of the ONNX graph, and all of its inputs must be declared; outputs may be "
        "left out. Exporters drop inputs that the graph does not use, and make up names where "
        "none are given.",
        wrong='output [ { name: "output" ... } ]  # model.onnx: logits',
        right='output [ { name: "logits" ... } ]',
    ),
    each_version(_find_names),
)

# ---------------------------------------------------------------- M010


def _find_unserved(model: Model, repository: Repository) -> Iterator[Mistake]:
    release = repository.target.release
    has_bf16 = release is not None and release >= BF16_SINCE

    def find(fit: Fit) -> Iterator[Mistake]:
        for side, ports in fit.ports.items():
            for port in ports.values():
                why = _why_unserved(fit, side, port)
                if why and not (has_bf16 and port.kind == "tensor(bfloat16)"):
                    text = f"{side} `{port.name}` of {fit.name} is {why[0]}"
                    yield Mistake(fit.at(side, port.name), text, why[1])

    yield from each_version(find)(model, repository)


def _why_unserved(fit: Fit, side: str, port: Port) -> tuple[str, str] | None:
    """What is wrong, and the way out; some kinds do no harm where the config leaves them out."""
    named = (side, port.name) in fit.named
    if "map(" in port.kind:
        hint = "export the classifier without ZipMap: `options={'zipmap': False}` in skl2onnx"
        return f"{port.kind}, and Triton serves tensors only", hint
    if not port.kind.startswith("tensor("):
        hint = "cut the graph before it, so that it ends in tensors"
        return f"{port.kind}, and Triton serves tensors only", hint
    if port.kind not in MODEL_TYPES and (named or "complex" in port.kind):
        text = f"{port.kind}, a type that Triton's ONNX backend does not serve"
        return text, "cast it in the graph, to FP32 for example"
    if named and side in fit.done.changes and 0 in (port.shape or ())[fit.batching :]:
        text = f"{shown(port.shape)}, and Triton serves no axis of length 0"
        return text, "leave the axis open in the ONNX file"
    return None


UNSERVED = Check(
    Rule(
        "M010",
        "input or output that Triton does not serve",
        "Triton serves tensors of its own types. A sequence, a map or an optional value stops the "
        "model from loading, even where the config leaves it out; a type that Triton lacks does "
        "where the config names it.",
        wrong="to_onnx(classifier, x)  # output_probability: seq(map(int64,tensor(float)))",
        right="to_onnx(classifier, x, options={'zipmap': False})",
    ),
    _find_unserved,
)

# ---------------------------------------------------------------- M014


def _find_special_inputs(fit: Fit) -> Iterator[Mistake]:
    config = fit.config
    required = {tensor.name: tensor for tensor in tensors(fit.file.inputs)}
    for control in dict.fromkeys(config.controls):
        try:
            check_controls(replace(config, controls=(control,)), required)
        except LoadError as error:
            text = str(error).removeprefix(f"unable to load model '{config.model}', ")
            yield Mistake(_control_place(fit.model, control.name), text.replace("'", "`"))
    known = {tensor.name: tensor for tensor in tensors(fit.ports["input"].values())}
    for tensor in config.inputs:
        at = fit.at("input", tensor.name)
        if tensor.optional and config.max_batch != 0:
            text = f"input `{tensor.name}` is optional, and max_batch_size is {config.max_batch}: "
            text += "the ONNX backend takes optional inputs only without batching"
            yield Mistake(at, text, "write `max_batch_size: 0`, or leave the input out")
        elif tensor.ragged and tensor.name in known and known[tensor.name].dtype == tensor.dtype:
            try:
                check_input(config, tensor, known)
            except LoadError:
                flat = shown(fit.ports["input"][tensor.name].shape)
                text = f"input `{tensor.name}` has allow_ragged_batch, for which the model must "
                text += f"take one list, [-1], and not be optional, and {fit.name} has {flat}"
                yield Mistake(at, text, "export for flat inputs, or leave the field out")


def _control_place(model: Model, name: str) -> Position:
    for number, entry in enumerate(model.message.sequence_batching.control_input):
        if entry.name == name:
            return model.at("sequence_batching", "control_input", number)
    return model.at("sequence_batching")


SPECIAL_INPUT = Check(
    Rule(
        "M014",
        "control, optional or ragged input that the model does not have so",
        "A sequence control is an input of the model with one value a row and the type of the "
        "config. Optional inputs are initializers of the graph, without batching. A ragged input "
        "has one axis, since the rows of all requests come as one list.",
        wrong='input [ { name: "x" dims: [ -1 ] allow_ragged_batch: true } ]  # model.onnx: [N,M]',
        right='input [ { name: "x" dims: [ -1 ] allow_ragged_batch: true } ]  # model.onnx: [M]',
    ),
    each_version(_find_special_inputs),
)

ONNX_TENSOR_CHECKS: tuple[Check, ...] = (
    BATCH_AXIS,
    SHAPE,
    TYPE,
    NAME,
    UNSERVED,
    SPECIAL_INPUT,
)
