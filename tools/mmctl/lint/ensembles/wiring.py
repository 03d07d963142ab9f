"""The wiring of one ensemble, its own config.pbtxt alone: E001, E002, E009, E010, E012 and E018.

Triton checks these while it reads the repository; its reason is only in the server's log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mmctl.diagnostics import Rule, closest, nearest
from mmctl.lint.ensembles.graph import End, Wiring, shown_way, step_at, wiring_of
from mmctl.lint.repository import Model, Repository, names_of
from mmctl.lint.rules import Check, Mistake
from mmctl.lint.text import DOUBLE_KEY

# ---------------------------------------------------------------- E001


def _find_unread_inputs(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    for number, row in enumerate(model.message.input):
        if row.name not in wiring.readers and row.name not in wiring.writers and wiring.steps:
            yield Mistake(
                model.at("input", number),
                f"input `{row.name}` of the ensemble is read by no step",
                "map it to the input of a step, or leave it out",
            )


UNREAD_INPUT = Check(
    Rule(
        "E001",
        "ensemble input that no step reads",
        "Triton refuses an ensemble that asks its callers for a tensor which no step reads.",
        wrong='input [ { name: "mask" ... } ]  # in no input_map',
        right='input_map { key: "mask" value: "mask" }',
    ),
    _find_unread_inputs,
)

# ---------------------------------------------------------------- E002


def _find_loose_ends(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    unread = _unread(wiring)
    wanted = (*wiring.missing, *wiring.unwritten)
    known = sorted({*wiring.inputs, *wiring.writers})
    for tensor in wanted:
        meant = _meant(tensor, unread)
        if meant is not None:
            del unread[meant]
        hint = LOST_KEY if _lost_a_key(model) else nearest(tensor, [meant] if meant else known)
        if tensor in wiring.readers:
            end = wiring.readers[tensor][0]
            at = step_at(model, end.step, "input_map", end.name)
            yield Mistake(at, f"tensor `{tensor}` is read by {end.step} and written by none", hint)
        else:
            at = model.at("output", names_of(model.message.output).index(tensor))
            yield Mistake(at, f"output `{tensor}` of the ensemble is written by no step", hint)
    for tensor, end in unread.items():
        yield Mistake(
            step_at(model, end.step, "output_map", end.name),
            f"tensor `{tensor}` is written by {end.step} and never read",
            "leave it out of `output_map`: a step need not give all that its model can",
        )


DIGITS = "0123456789"
LOST_KEY = "a map with the same key twice loses the tensor of the first one"


def _lost_a_key(model: Model) -> bool:
    findings = model.config.findings if model.config else ()
    return any(finding.code == DOUBLE_KEY for finding in findings)


def _meant(tensor: str, unread: Mapping[str, End]) -> str | None:
    """The tensor that nobody reads and that was meant, if it is near: `t_1` is not a `t_2`
    misspelt.
    """
    word = tensor.rstrip(DIGITS)
    return closest(tensor, [name for name in unread if name.rstrip(DIGITS) != word], 0.6)


def _unread(wiring: Wiring) -> dict[str, End]:
    read = {*wiring.readers, *wiring.outputs, *wiring.inputs}
    return {tensor: ends[0] for tensor, ends in wiring.writers.items() if tensor not in read}


LOOSE_END = Check(
    Rule(
        "E002",
        "tensor without a source or without a reader",
        "Each tensor of an ensemble needs one that gives it, a step or the caller, and one that "
        "reads it, a step or the ensemble's output. Most often a name is misspelt. An output of a "
        "model that nobody needs is left out of output_map.",
        wrong='output_map { key: "y" value: "embeding" }\n'
        'input_map { key: "x" value: "embedding" }',
        right='output_map { key: "y" value: "embedding" }\n'
        'input_map { key: "x" value: "embedding" }',
    ),
    _find_loose_ends,
)

# ---------------------------------------------------------------- E009


def _find_second_writers(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    for tensor, ends in wiring.writers.items():
        first = ends[0]
        if tensor in wiring.inputs:
            yield Mistake(
                step_at(model, first.step, "output_map", first.name),
                f"tensor `{tensor}` is an input of the ensemble and written by {first.step}: "
                "each request gets two answers, which is an error",
                "give the step's tensor a name of its own",
            )
        for end in ends[1:]:
            twice = f"twice by {end.step}" if end.step is first.step else None
            yield Mistake(
                step_at(model, end.step, "output_map", end.name),
                f"tensor `{tensor}` is written " + (twice or f"by {first.step} and by {end.step}"),
                "give one of the two another name",
            )


SECOND_WRITER = Check(
    Rule(
        "E009",
        "tensor with two writers",
        "A tensor of an ensemble comes from one step, or from the caller. Triton refuses two steps "
        "that write it; a step that writes an input of the ensemble loads, and each request fails "
        "with `expected a single response, got 2`.",
        wrong='output_map { key: "y" value: "out" }  # in two steps',
        right='output_map { key: "y" value: "out_2" }',
    ),
    _find_second_writers,
)

# ---------------------------------------------------------------- E010


def _find_circles(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    for circle in wiring.circles:
        first, last = circle[0], circle[-1]
        name = next(
            name
            for name, tensor in first.inputs.items()
            if any(end.step is last for end in wiring.writers.get(tensor, ()))
        )
        way = shown_way([step.model for step in (*circle, first)])
        yield Mistake(
            step_at(model, first, "input_map", name),
            f"{first} waits for itself" + f": {way}" * (len(circle) > 1),
            "break the circle: one of them must do without what another gives",
        )


CIRCLE = Check(
    Rule(
        "E010",
        "steps that wait for each other",
        "A step runs when all its inputs are there, so steps in a circle never run. Triton's log "
        "only says that an output `is not written`. What must go round is a loop in a BLS model.",
        wrong='step { ... input_map { key: "x" value: "b_out" } output_map { ... value: "a_out" } }'
        '\nstep { ... input_map { key: "x" value: "a_out" } output_map { ... value: "b_out" } }',
        right='step { ... input_map { key: "x" value: "x" } output_map { ... value: "a_out" } }\n'
        'step { ... input_map { key: "x" value: "a_out" } output_map { ... value: "b_out" } }',
    ),
    _find_circles,
)

# ---------------------------------------------------------------- E012

NOT_IN_ENSEMBLES = {
    "instance_group": "set it in the models that it calls: an ensemble has no instances",
    "optimization": "set it in the models that it calls",
    "model_warmup": "warm up the models that it calls",
}
BACKEND_FILES = frozenset({"model.plan", "model.onnx", "model.xml", "model.pt", "model.py"})
"""A `default_model_filename` that makes Triton add a backend."""


def _find_foreign_fields(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    message = model.message
    calls = message.HasField("ensemble_scheduling")
    if message.backend:
        hint = 'write `platform: "ensemble"` and leave `backend` out'
        yield Mistake(
            model.at("backend"), f"an ensemble has no backend, and `{message.backend}` is set", hint
        )
    elif message.platform == "ensemble" and message.default_model_filename in BACKEND_FILES:
        yield Mistake(
            model.at("default_model_filename"),
            f"an ensemble has no model file, and `{message.default_model_filename}` is set",
            "leave `default_model_filename` out",
        )
    elif message.platform != "ensemble":
        given = f"`{message.platform}`" if message.platform else "missing"
        at = model.at("platform") if message.platform else model.at("ensemble_scheduling")
        yield Mistake(
            at,
            f"`ensemble_scheduling` needs the platform `ensemble`, and `platform` is {given}",
            'write `platform: "ensemble"`',
        )
    written = {field.name for field, _ in message.ListFields()}
    for field, hint in NOT_IN_ENSEMBLES.items() if calls else ():
        if field in written:
            yield Mistake(model.at(field), f"an ensemble takes no `{field}`", hint)


FOREIGN_FIELD = Check(
    Rule(
        "E012",
        "field that an ensemble does not take",
        'An ensemble has `platform: "ensemble"`, steps, inputs and outputs. Backend, instances, '
        "scheduler, optimization and warm-up belong to the models that it calls.",
        wrong='platform: "ensemble"\ninstance_group { count: 2 }',
        right='platform: "ensemble"',
    ),
    _find_foreign_fields,
)

# ---------------------------------------------------------------- E018


def _find_empty_steps(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    if not wiring.steps:
        yield Mistake(
            model.at("ensemble_scheduling"),
            "the ensemble has no step",
            "add `ensemble_scheduling { step { model_name: ... } }`",
        )
    for step in wiring.steps:
        if not step.model:
            yield Mistake(step_at(model, step), f"{step} has no `model_name`")
        for field, entries in (("input_map", step.inputs), ("output_map", step.outputs)):
            if not entries:
                hint = f'write `{field} {{ key: "NAME IN THE MODEL" value: "TENSOR" }}`'
                yield Mistake(step_at(model, step), f"{step} has no `{field}`", hint)


EMPTY_STEP = Check(
    Rule(
        "E018",
        "step with something missing",
        "An ensemble has at least one step, and a step names its model, at least one input and at "
        "least one output.",
        wrong='ensemble_scheduling { step { model_name: "a" } }',
        right='ensemble_scheduling { step { model_name: "a" model_version: -1\n'
        '  input_map { key: "x" value: "x" }\n  output_map { key: "y" value: "y" } } }',
    ),
    _find_empty_steps,
)


ENSEMBLE_CHECKS: tuple[Check, ...] = (
    UNREAD_INPUT,
    LOOSE_END,
    SECOND_WRITER,
    CIRCLE,
    FOREIGN_FIELD,
    EMPTY_STEP,
)
