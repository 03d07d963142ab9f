"""The steps of an ensemble against the models that they call: E004, E005, E008, E013, E014, E016
and E020.

Triton checks these after the called models are loaded. One that is not here or cannot be read says
nothing, and what only a server can tell of a model is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mmctl.diagnostics import Rule, closest, nearest
from mmctl.lint.ensembles.calls import called_model, calls_known
from mmctl.lint.ensembles.graph import circle_through, shown_way, step_at, wiring_of
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.lint.signatures import IoTensor

# ---------------------------------------------------------------- E004, E005


def _find_unmapped_inputs(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    for step, called, io in calls_known(model, repository):
        inputs = io.inputs or {}
        left = [name for name in inputs if name not in step.inputs and not inputs[name].optional]
        if not io.grows:
            for name in _unknown(step.inputs, io.inputs):  # a misspelt key is E005 alone
                if (meant := _meant(name, left)) is not None:
                    left.remove(meant)
        for name in left:
            yield Mistake(
                step_at(model, step),
                f"{step} does not map input `{name}` of `{called.name}`",
                f'add `input_map {{ key: "{name}" value: "TENSOR" }}`',
            )


UNMAPPED_INPUT = Check(
    Rule(
        "E004",
        "input of a step's model that is not mapped",
        "A step gives its model every input that is not `optional`.",
        wrong='step { model_name: "rank" input_map { key: "query" value: "q" } ... }',
        right='step { model_name: "rank" input_map { key: "query" value: "q" }\n'
        '  input_map { key: "items" value: "items" } ... }',
    ),
    _find_unmapped_inputs,
)


def _find_unknown_names(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    for step, called, io in calls_known(model, repository):
        if io.grows:
            continue
        for side, names, known in (
            ("input", step.inputs, io.inputs),
            ("output", step.outputs, io.outputs),
        ):
            for name in _unknown(names, known):
                meant = _meant(name, [other for other in known or () if other not in names])
                yield Mistake(
                    step_at(model, step, f"{side}_map", name),
                    f"{step}: `{called.name}` has no {side} `{name}`",
                    f"did you mean `{meant}`?" if meant else nearest(name, known or ()),
                )


UNKNOWN_NAME = Check(
    Rule(
        "E005",
        "key of a map that the model does not have",
        "The keys of input_map and output_map are names of the called model, the values are names "
        "of the ensemble.",
        wrong='input_map { key: "text" value: "TEXT" }  # the model calls it "TEXT"',
        right='input_map { key: "TEXT" value: "text" }',
    ),
    _find_unknown_names,
)


def _unknown(names: Iterable[str], known: Mapping[str, IoTensor] | None) -> list[str]:
    return [] if known is None else [name for name in names if name not in known]


def _meant(name: str, free: list[str]) -> str | None:
    """The one of the names that are not used yet which was meant, if it is near."""
    same = (other for other in free if other.casefold() == name.casefold())
    return next(same, None) or closest(name, free, 0.6)


# ---------------------------------------------------------------- E008


def _find_batches(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    largest = model.message.max_batch_size
    told = set()
    for step, called, io in calls_known(model, repository):
        if io.max_batch and io.max_batch < largest and called.name not in told:
            told.add(called.name)
            yield Mistake(
                model.at("max_batch_size"),
                f"`max_batch_size` is {largest}, and {step} takes at most {io.max_batch}",
                f"write `max_batch_size: {io.max_batch}`, or raise that of `{called.name}`",
            )


BATCH_TOO_LARGE = Check(
    Rule(
        "E008",
        "batch larger than a step takes",
        "An ensemble gives its whole batch to each step, so its max_batch_size is at most that of "
        "every model it calls which batches. Models with max_batch_size 0 do not count.",
        wrong="ensemble: max_batch_size: 16, model of a step: max_batch_size: 8",
        right="ensemble: max_batch_size: 8, model of a step: max_batch_size: 8",
    ),
    _find_batches,
)

# ---------------------------------------------------------------- E013


def _find_optional_inputs(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    optional = wiring_of(model).optional
    for step, called, io in calls_known(model, repository):
        for name, tensor in step.inputs.items():
            spec = (io.inputs or {}).get(name)
            if tensor in optional and spec and not spec.optional:
                yield Mistake(
                    step_at(model, step, "input_map", name),
                    f"input `{tensor}` of the ensemble is optional, and {step} needs it as "
                    f"`{name}`: a request without it fails",
                    f"make `{name}` optional in `{called.name}`, or leave `optional` out here",
                )


OPTIONAL_INPUT = Check(
    Rule(
        "E013",
        "optional input of the ensemble for a step that needs it",
        "Triton loads the ensemble, and a request that leaves the input out fails in the step.",
        wrong='input [ { name: "temperature" optional: true ... } ]  # the model needs it',
        right='input [ { name: "temperature" ... } ]',
    ),
    _find_optional_inputs,
)

# ---------------------------------------------------------------- E014


def _find_versions(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    for step in wiring_of(model).steps:
        called = called_model(step, repository)
        if step.version == -1 or not step.model:
            continue
        at = step_at(model, step, "model_version")
        hint = "write `model_version: -1` for the newest version that is served"
        if step.version == 0:
            yield Mistake(
                at, f"{step} has no `model_version`, which means 0, and no version is 0", hint
            )
        elif called and called.served_versions and step.version not in called.served_versions:
            yield Mistake(
                at,
                f"{step} wants version {step.version}, and `{called.name}` "
                f"{served_by(called, step.version)}",
                hint,
            )


def served_by(called: Model, wanted: int) -> str:
    """Which versions of a model Triton loads, and why not the wanted one."""
    if wanted not in called.versions:
        return f"has only {', '.join(map(str, sorted(called.versions)))}"
    served = ", ".join(map(str, called.served_versions))
    return f"serves only {served} by its version policy"


WRONG_VERSION = Check(
    Rule(
        "E014",
        "version of a step that is not served",
        "`model_version` left out means 0, which no model has. A version must be among those that "
        "the model's version policy serves; by default that is the highest one alone.",
        wrong='step { model_name: "a" input_map { ... } output_map { ... } }',
        right='step { model_name: "a" model_version: -1 input_map { ... } output_map { ... } }',
    ),
    _find_versions,
)

# ---------------------------------------------------------------- E016


def _find_missing_models(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble or not repository.whole:
        return
    for step in wiring_of(model).steps:
        if step.model and step.model not in repository.models:
            yield Mistake(
                step_at(model, step, "model_name"),
                f"step {step.number}: model `{step.model}` is not in the repository",
                nearest(step.model, set(repository.models) - {model.name}),
            )


MISSING_MODEL = Check(
    Rule(
        "E016",
        "step whose model is not there",
        "An ensemble loads only with all the models that it calls. Their names are those of the "
        "folders in the repository.",
        wrong='step { model_name: "bert" ... }  # the folder is called bert_base',
        right='step { model_name: "bert_base" ... }',
    ),
    _find_missing_models,
)

# ---------------------------------------------------------------- E020


def _find_call_circles(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return

    def calls(name: str) -> Iterator[str]:
        called = repository.models.get(name)
        if called and called.readable and called.is_ensemble:
            yield from (step.model for step in wiring_of(called).steps)

    circle = circle_through(model.name, calls)
    if circle:
        step = next(step for step in wiring_of(model).steps if step.model == circle[1])
        yield Mistake(
            step_at(model, step, "model_name"),
            f"ensembles call each other in a circle: {shown_way(circle)}",
            "let the model that they share be called by both, or make one ensemble of the two",
        )


CALL_CIRCLE = Check(
    Rule(
        "E020",
        "ensembles that call each other",
        "Triton refuses ensembles that call themselves, directly or by others. One more ensemble "
        "that only calls one of them makes Triton 24.10 die while it reads the repository.",
        wrong='flow: step { model_name: "flow" }',
        right='flow: step { model_name: "classify" }',
    ),
    _find_call_circles,
)

STEP_CHECKS: tuple[Check, ...] = (
    UNMAPPED_INPUT,
    UNKNOWN_NAME,
    BATCH_TOO_LARGE,
    OPTIONAL_INPUT,
    WRONG_VERSION,
    MISSING_MODEL,
    CALL_CIRCLE,
)
