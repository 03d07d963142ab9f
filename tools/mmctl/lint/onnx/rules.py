"""Whether a config and its ONNX file fit: M001 to M006, M010, M014 to M016, and the row of M009.

Configs are judged as Triton completes them. Where ONNX Runtime may know more of an output than the
file tells, a finding says so, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mmctl.diagnostics import Position, Rule, Severity, nearest
from mmctl.lint.completion import tensors
from mmctl.lint.onnx.fit import Fit, counted, each_version, misfits, moved_axis, quoted, shown
from mmctl.lint.onnx.graph import Port
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.onnx_backend import (
    MODEL_TYPES,
    LoadError,
    check_controls,
    check_count,
    check_input,
)
from mmctl.triton.onnx_hazards import Hazard, hazards
from mmctl.triton.releases import Release

BF16_SINCE = Release(26, 1)
"""The backend learned BF16 inputs and outputs in 2026."""

REEXPORT = "export again with an example of two rows, or write `max_batch_size: 0`"


def _of_code(code: str) -> Callable[[Fit], Iterator[Mistake]]:
    def find(fit: Fit) -> Iterator[Mistake]:
        yield from (m.mistake for m in misfits(fit) if m.mistake is not None and m.code == code)

    return find


# ---------------------------------------------------------------- M001


def _find_batch_axis(fit: Fit) -> Iterator[Mistake]:
    yield from _of_code("M001")(fit)
    for port, _, _ in _other_rows(fit):
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
    each_version(_of_code("M002")),
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
    missing = [port.name for port in fit.file.inputs if port.name not in given]
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


def _given_inputs(fit: Fit) -> tuple[str, ...]:
    """The tensors of the model that a request, or Triton itself, fills."""
    message = fit.model.message
    return (
        *(tensor.name for tensor in fit.config.inputs),
        *(name for entry in message.batch_input for name in entry.target_name),
        *(entry.name for entry in message.sequence_batching.control_input),
        *(entry.input_name for entry in message.sequence_batching.state),
    )


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

# ---------------------------------------------------------------- M005

SCALARS = {
    "scalar-output-crash": ("output", Severity.ERROR),
    "scalar-output": ("output", Severity.ERROR),
    "scalar-input": ("input", Severity.WARNING),
}


@remembered
def _hazards(fit: Fit) -> tuple[Hazard, ...]:
    """What loads and then fails; misfits have their own findings."""
    if fit.done.refused is not None or not fit.done.max_batch_known:
        return ()
    blamed = {misfit.tensor for misfit in misfits(fit)}
    inputs = tensors(port for port in fit.file.inputs if port.shape is not None)
    outputs = tensors(port for port in fit.file.outputs if port.shape is not None)
    found = hazards(fit.config, inputs, outputs)
    return tuple(hazard for hazard in found if hazard.subject not in blamed)


def _find_scalars(fit: Fit) -> Iterator[Mistake]:
    yield from _of_code("M005")(fit)
    for hazard in _hazards(fit):
        if hazard.key in SCALARS:
            side, severity = SCALARS[hazard.key]
            hint = "export it with one value for each row, [N,1], or write `max_batch_size: 0`"
            yield Mistake(fit.at(side, hazard.subject), hazard.text, hint, severity)


SCALAR = Check(
    Rule(
        "M005",
        "scalar in a model that batches",
        "A scalar has no batch axis. As an output it cannot be divided among requests: Triton's "
        "ONNX backend loads the model, and the first request kills the server if the config has an "
        "empty reshape, or a batch of two fails. As an input, one value counts for all rows.",
        wrong="max_batch_size: 8  # model.onnx: total []\n"
        'output [ { name: "total" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]',
        right="max_batch_size: 8  # model.onnx: total [N,1]\n"
        'output [ { name: "total" data_type: TYPE_FP32 dims: [ 1 ] } ]',
    ),
    each_version(_find_scalars),
)

# ---------------------------------------------------------------- M006


def _other_rows(fit: Fit) -> Iterator[tuple[Port, int, int]]:
    """Outputs that have another number of rows than the batch, with the two numbers."""
    flat = fit.config.batch_inputs or any(tensor.ragged for tensor in fit.config.inputs)
    if fit.config.max_batch < 2 or flat or fit.done.refused is not None:
        return
    blamed = {misfit.tensor for misfit in misfits(fit)}
    for side, tensor, port in fit.pairs:
        if side == "input" or port.name in blamed or port.name in fit.config.batch_outputs:
            continue
        for batch, rows in fit.file.batch_rows.items():
            if batch <= fit.config.max_batch and rows.get(tensor.name, batch) != batch:
                yield port, batch, rows[tensor.name]
                break


def _find_fixed_batch(fit: Fit) -> Iterator[Mistake]:
    yield from _of_code("M006")(fit)
    short = [*_other_rows(fit)]
    for port, batch, rows in short:
        if not moved_axis(fit, port):
            yield Mistake(
                fit.at("output", port.name),
                f"output `{port.name}` of {fit.name} has {counted(rows, 'row')} for a batch of "
                f"{batch}, which cannot be divided among requests",
                REEXPORT,
            )
    if fit.config.max_batch > 1 and not (short or misfits(fit) or fit.done.refused):
        for broken in _broken_nodes(fit):
            yield Mistake(fit.model.at("max_batch_size"), broken, REEXPORT)


def _broken_nodes(fit: Fit) -> Iterator[str]:
    for state in fit.file.fixed_states:
        yield (
            f"`{state.node}` ({state.operator}) in {fit.name} starts from a constant state for "
            f"{counted(state.batch, 'row')}, and max_batch_size is {fit.config.max_batch}: any "
            "other batch fails"
        )
    if not fit.file.fixed_states and (broken := fit.file.broken_by_batch):
        yield f"{fit.name} takes one row, and a batch of 2 breaks its graph: {broken}"


FIXED_BATCH = Check(
    Rule(
        "M006",
        "batch fixed inside the graph",
        "The file says that the first axis is open, and the graph has a size of its own there: it "
        "was traced with one row, and a constant of that size stayed in it. Shape inference shows "
        "some of these; the others show when a batch of two runs: `mmctl check --run`.",
        wrong="torch.onnx.export(model, (torch.zeros(1, 4),), ...)  # x.view(1, 2, 2) inside",
        right="torch.onnx.export(model, (torch.zeros(2, 4),), ...)  # x.view(x.shape[0], 2, 2)",
    ),
    each_version(_find_fixed_batch),
)

# ---------------------------------------------------------------- M009

BATCH_MATES = Rule(
    "M009",
    "answers that depend on the batch",
    "A batch must give each row what it gets alone. A mean or a norm over the batch axis loads and "
    "runs, and each request is then changed by others that it was joined with. Only a run shows "
    "it: `mmctl check --run`.",
    wrong="x - x.mean(axis=0)",
    right="x - x.mean(axis=1, keepdims=True)",
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
    named = any(s == side and tensor.name == port.name for s, tensor, _ in fit.pairs)
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

# ---------------------------------------------------------------- M015


def _find_short_strings(fit: Fit) -> Iterator[Mistake]:
    for hazard in _hazards(fit):
        known = all(hazard.subject in rows for rows in fit.file.batch_rows.values())
        if hazard.key == "string-output" and not known:
            at = fit.at("output", hazard.subject)
            yield Mistake(at, hazard.text, "give one row of text for each row")


SHORT_STRINGS = Check(
    Rule(
        "M015",
        "strings that may be fewer than the batch",
        "Triton's ONNX backend does not count the rows of a string output: when the model gives "
        "fewer than came in, the answer holds foreign memory, or the server dies.",
        Severity.WARNING,
        wrong="model.onnx: x [N,4] -> labels [K], strings",
        right="model.onnx: x [N,4] -> labels [N,1], strings",
    ),
    each_version(_find_short_strings),
)

# ---------------------------------------------------------------- M016


def _find_ragged_outputs(fit: Fit) -> Iterator[Mistake]:
    flat = all(len(port.shape or ()) == 1 for _, tensor, port in fit.pairs if tensor.ragged)
    for hazard in _hazards(fit):
        if hazard.key == "ragged-output" and flat:  # else the model does not even load
            yield Mistake(
                fit.at("output", hazard.subject),
                hazard.text,
                f'add batch_output [ {{ target_name: "{hazard.subject}" kind: '
                "BATCH_SCATTER_WITH_INPUT_SHAPE source_input: ... } ]",
            )


RAGGED_OUTPUT = Check(
    Rule(
        "M016",
        "output that is handed out by the wrong rows",
        "An output that has as many values as a ragged input must be scattered by its shape. "
        "Without batch_output Triton divides it by the rows of the requests, so each gets values "
        "of others, without an error.",
        Severity.WARNING,
        wrong="input [ { ... allow_ragged_batch: true } ]",
        right="input [ { ... allow_ragged_batch: true } ]\n"
        'batch_output [ { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
        'source_input: "x" } ]',
    ),
    each_version(_find_ragged_outputs),
)

ONNX_CHECKS: tuple[Check, ...] = (
    BATCH_AXIS,
    SHAPE,
    TYPE,
    NAME,
    SCALAR,
    FIXED_BATCH,
    UNSERVED,
    SPECIAL_INPUT,
    SHORT_STRINGS,
    RAGGED_OUTPUT,
)
