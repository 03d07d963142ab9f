"""What becomes of batches in an ONNX model: M005, M006, M015, M016, and the row of M009.

Most of it loads, and fails or answers wrongly when requests come.
"""

from __future__ import annotations

from collections.abc import Iterator

from mmctl.diagnostics import Rule, Severity, counted
from mmctl.lint.completion import tensors
from mmctl.lint.onnx.fit import (
    Fit,
    each_version,
    misfits,
    misfits_of,
    moved_axis,
    other_rows,
)
from mmctl.lint.remembered import remembered
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.onnx_hazards import Hazard, hazards

REEXPORT = "export again with an example of two rows, or write `max_batch_size: 0`"

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
    yield from misfits_of("M005")(fit)
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


def _find_fixed_batch(fit: Fit) -> Iterator[Mistake]:
    yield from misfits_of("M006")(fit)
    short = [*other_rows(fit)]
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

ONNX_BATCH_CHECKS: tuple[Check, ...] = (SCALAR, FIXED_BATCH, SHORT_STRINGS, RAGGED_OUTPUT)
