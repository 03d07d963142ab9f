"""Python models that call others (BLS), by their code: L001 to L007. Nothing of it is run.

Triton checks none of this before a request comes. What is only known while the code runs, as a
model's name that is built from others, is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mmctl.diagnostics import Position, Rule, Severity, nearest
from mmctl.lint.code.calls import Place, Reading, Request, calls_of
from mmctl.lint.code.python import code_of
from mmctl.lint.ensembles.calls import decoupled_models
from mmctl.lint.ensembles.graph import circle_through, shown_way, wiring_of
from mmctl.lint.ensembles.steps import served_by
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.lint.signatures import IoTensor, io_of


def _at(model: Model, place: Place) -> Position:
    code = code_of(model)
    return Position(code.shown if code else model.shown, *place)


# ---------------------------------------------------------------- L001


def _find_unchecked_answers(model: Model, _repository: Repository) -> Iterator[Mistake]:
    told: set[Place] = set()
    for reading in calls_of(model).readings:
        if reading.checked or reading.runs[0].place in told:
            continue
        told.add(reading.runs[0].place)
        callee = _callee(reading)
        of = f"of `{callee}` " if callee else ""
        then = "the code fails with an AttributeError" if reading.certain else "an output is None"
        yield Mistake(
            _at(model, reading.place),
            f"the answer {of}is used without `has_error()`: after an error {then}, and the real "
            "reason is lost",
            "write `if answer.has_error(): raise pb_utils.TritonModelException("
            "answer.error().message())` before it",
            Severity.ERROR if reading.certain else Severity.WARNING,
        )


UNCHECKED_ANSWER = Check(
    Rule(
        "L001",
        "answer of another model used unchecked",
        "`exec` and `async_exec` do not raise: an error of the called model is in the answer, and "
        "the outputs are missing. Who asks is only told of the `NoneType` that comes after.",
        Severity.WARNING,
        wrong='answer = request.exec()\ny = pb_utils.get_output_tensor_by_name(answer, "y")',
        right="answer = request.exec()\nif answer.has_error():\n"
        "    raise pb_utils.TritonModelException(answer.error().message())\n"
        'y = pb_utils.get_output_tensor_by_name(answer, "y")',
    ),
    _find_unchecked_answers,
)


def _callee(reading: Reading) -> str | None:
    names = {run.request.model if run.request else None for run in reading.runs}
    return names.pop() if len(names) == 1 else None


# ---------------------------------------------------------------- L002


def _find_lost_calls(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for run in calls_of(model).runs:
        if run.plain:
            yield Mistake(
                _at(model, run.place),
                "`async_exec` in an `execute` that is not `async`: there is no event loop for it",
                "write `async def execute` and await the call, or use `exec`",
            )
        elif run.lost:
            yield Mistake(
                _at(model, run.place),
                "the result of `async_exec` is not awaited: it is a future, no answer",
                "write `await request.async_exec()`, or gather several with `asyncio.gather`",
            )


LOST_CALL = Check(
    Rule(
        "L002",
        "async_exec without await",
        "`async_exec` gives a future, which becomes an answer when it is awaited, alone or with "
        "others by `asyncio.gather`. Only an `async def execute` can do so.",
        wrong="async def execute(self, requests):\n    answer = request.async_exec()",
        right="async def execute(self, requests):\n    answer = await request.async_exec()",
    ),
    _find_lost_calls,
)

# ---------------------------------------------------------------- L003


def _find_circles(model: Model, repository: Repository) -> Iterator[Mistake]:
    told = set()
    for request in calls_of(model).requests:
        if request.model is None or request.model in told:
            continue
        told.add(request.model)
        way = _way_back(model.name, request.model, repository)
        if way:
            yield Mistake(
                _at(model, request.place),
                f"models call each other in a circle: {shown_way(way)}: the call waits for an "
                "instance, which waits for the call",
                "call a model that does not lead back here, or loop inside this one",
            )


def _way_back(start: str, first: str, repository: Repository) -> tuple[str, ...]:
    def calls(name: str) -> Iterator[str]:
        called = repository.models.get(name)
        if called is None or not called.readable:
            return
        if called.is_ensemble:
            yield from (step.model for step in wiring_of(called).steps)
        for request in calls_of(called).requests:
            if request.model is not None and (name != start or request.model == first):
                yield request.model

    return circle_through(start, calls)


CALL_CIRCLE = Check(
    Rule(
        "L003",
        "models that call each other",
        "An instance is busy until its own request is answered. A model that calls itself, alone "
        "or by others, waits for one that is free: when all are busy, requests hang for ever, and "
        "the server must be killed.",
        wrong='class of model `rank`: pb_utils.InferenceRequest(model_name="rank", ...)',
        right='class of model `rank`: pb_utils.InferenceRequest(model_name="score", ...)',
    ),
    _find_circles,
)

# ---------------------------------------------------------------- L004


def _find_unknown_names(model: Model, repository: Repository) -> Iterator[Mistake]:
    calls = calls_of(model)
    wrong: set[tuple[Request, str]] = set()
    for request in calls.requests:
        called = repository.models.get(request.model) if request.model is not None else None
        if called is None:
            yield from _missing_model(model, request, repository)
        elif called.readable and not called.findings:
            yield from _wrong_version(model, request, called)
            for name, mistake in _wrong_tensors(model, request, called):
                wrong.add((request, name))
                yield mistake
    for reading in calls.readings:
        yield from _wrong_reading(model, reading, repository, wrong)


def _missing_model(model: Model, request: Request, repository: Repository) -> Iterator[Mistake]:
    if request.model is not None and repository.whole:
        yield Mistake(
            _at(model, request.place),
            f"model `{request.model}` is not in the repository",
            nearest(request.model, set(repository.models) - {model.name}),
        )


def _wrong_version(model: Model, request: Request, called: Model) -> Iterator[Mistake]:
    version = request.version
    if version in (None, -1) or version in called.served_versions or not called.served_versions:
        return
    yield Mistake(
        _at(model, request.place),
        f"version {version} of `{called.name}` is called, which {served_by(called, version or 0)}",
        "leave `model_version` out for the newest version that is served",
    )


def _wrong_tensors(model: Model, request: Request, called: Model) -> Iterator[tuple[str, Mistake]]:
    io = io_of(called)
    at = _at(model, request.place)
    inputs = io.inputs or {}
    for side, names, known in (
        ("input", request.inputs, io.inputs),
        ("output", request.outputs, io.outputs),
    ):
        if known is None or io.grows:
            continue
        for name in names or ():
            if name is not None and name not in known:
                yield name, Mistake(at, *_no_tensor(called, side, name, known))
    given = request.inputs
    if given is not None and None not in given and all(name in inputs for name in given):
        for name, tensor in inputs.items():
            if name not in given and not tensor.optional:
                text = f"input `{name}` of `{called.name}` is not given"
                yield name, Mistake(at, text, f"add a tensor `{name}` to `inputs`")


def _no_tensor(
    called: Model, side: str, name: str, known: Mapping[str, IoTensor]
) -> tuple[str, str | None]:
    return f"model `{called.name}` has no {side} `{name}`", nearest(name, known)


def _wrong_reading(
    model: Model, reading: Reading, repository: Repository, wrong: Iterable[tuple[Request, str]]
) -> Iterator[Mistake]:
    """An output that is read, of the only model that it can be of."""
    requests = {run.request for run in reading.runs}
    name = reading.name
    if len(requests) != 1 or name is None:
        return
    request = requests.pop()
    if request is None or request.model is None or (request, name) in wrong:
        return
    called = repository.models.get(request.model)
    at = _at(model, reading.place)
    known = io_of(called).outputs if called and called.readable and not called.findings else None
    if called and known is not None and name not in known and not io_of(called).grows:
        yield Mistake(at, *_no_tensor(called, "output", name, known))
    elif request.outputs and None not in request.outputs and name not in request.outputs:
        asked = ", ".join(f"`{output}`" for output in request.outputs)
        yield Mistake(
            at,
            f"output `{name}` of `{request.model}` is read and not asked for ({asked})",
            f"add `{name}` to `requested_output_names`",
        )


UNKNOWN_NAME = Check(
    Rule(
        "L004",
        "call of what is not there",
        "The model, its version or one of the tensors does not exist, so the call fails whenever "
        "it is made: Triton does not look into the code when it loads it.",
        wrong='pb_utils.InferenceRequest(model_name="bert", model_version=7, ...)  # serves 1',
        right='pb_utils.InferenceRequest(model_name="bert", ...)',
    ),
    _find_unknown_names,
)

# ---------------------------------------------------------------- L005


def _find_streams(model: Model, repository: Repository) -> Iterator[Mistake]:
    for run in calls_of(model).runs:
        name = run.request.model if run.request else None
        if name and run.decoupled is False and name in decoupled_models(repository):
            call = "async_exec" if run.asynchronous else "exec"
            yield Mistake(
                _at(model, run.place),
                f"model `{name}` is decoupled, and `{call}` asks it for one answer",
                f"write `{call}(decoupled=True)` and loop over the answers; the last may be empty",
            )


STREAM = Check(
    Rule(
        "L005",
        "decoupled model called for one answer",
        "A decoupled model answers any number of times. Triton refuses to call it without "
        "`decoupled=True`, which gives the answers one after the other.",
        wrong="answer = request.exec()",
        right="for answer in request.exec(decoupled=True):\n    if answer.output_tensors(): ...",
    ),
    _find_streams,
)

# ---------------------------------------------------------------- L006

ON_GPUS = (0, 1)
"""KIND_AUTO and KIND_GPU of an instance group."""


def _find_slow_calls(model: Model, repository: Repository) -> Iterator[Mistake]:
    calls = calls_of(model)
    if not calls.runs:
        return
    message = model.message
    joins = message.HasField("dynamic_batching") and message.max_batch_size > 1
    serial = next((run for run in calls.runs if run.serial), None)
    if joins and serial:
        yield Mistake(
            _at(model, serial.place),
            "the calls for the requests of one `execute` wait for each other",
            "make them all with `async_exec` and wait for them by one `asyncio.gather`",
        )
    asynchronous = next((run for run in calls.runs if run.asynchronous), None)
    if calls.awaits and asynchronous and not joins and _instances(model, repository) <= 1:
        yield Mistake(
            _at(model, asynchronous.place),
            "the model has one instance, which takes one request at a time, for all its `async`",
            "raise `count` in `instance_group`, or set `dynamic_batching` and gather over all "
            "requests",
        )


def _instances(model: Model, repository: Repository) -> int:
    """How many instances a model has, one for each GPU of the target where it names none."""
    gpus = repository.target.gpus or 1
    return (
        sum(
            max(group.count, 1) * (len(group.gpus) or (gpus if group.kind in ON_GPUS else 1))
            for group in model.message.instance_group
        )
        or gpus
    )


SLOW_CALL = Check(
    Rule(
        "L006",
        "calls that wait for each other",
        "An instance runs one `execute` until it returns, `async` or not. Calls run side by side "
        "only when they are gathered inside one `execute`, or in more instances.",
        Severity.INFO,
        wrong="for request in requests:\n    answer = call(request).exec()",
        right="answers = await asyncio.gather(*[call(r).async_exec() for r in requests])",
    ),
    _find_slow_calls,
)

# ---------------------------------------------------------------- L007


def _find_broken_code(model: Model, _repository: Repository) -> Iterator[Mistake]:
    code = code_of(model)
    if code is None:
        return
    broken = calls_of(model).broken
    own = "EXECUTION_ENV_PATH" in model.message.parameters
    if code.content is None:
        yield Mistake(Position(code.shown), f"the code cannot be read: {code.unreadable}")
    elif broken:
        place, why = broken
        yield Mistake(
            _at(model, place),
            f"the code is not Python as this version knows it: {why}",
            "a newer Python may know it: compare it with that of the server",
            Severity.INFO if own else None,
        )


BROKEN_CODE = Check(
    Rule(
        "L007",
        "code that cannot be parsed",
        "A model whose code has an error of syntax does not load. It was parsed by the Python that "
        "runs mmctl; the server, or the model's own environment, may have another version.",
        Severity.WARNING,
        wrong="def execute(self, requests)\n    return []",
        right="def execute(self, requests):\n    return []",
    ),
    _find_broken_code,
)

BLS_CHECKS: tuple[Check, ...] = (
    UNCHECKED_ANSWER,
    LOST_CALL,
    CALL_CIRCLE,
    UNKNOWN_NAME,
    STREAM,
    SLOW_CALL,
    BROKEN_CODE,
)
