"""What Triton's text of a failed request means where it has one meaning only. Pure.

These failures lie in how models fit together, whatever the values were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mmctl.lint.run import ANSWER, JOIN, OUTPUT, WILDCARD
from mmctl.trials.judge import plain
from mmctl.trials.runcheck.model import Model, Step
from mmctl.trials.runcheck.remarks import Place

_NOISE = re.compile(
    r"in ensemble '[^']*', |\[request id: [^\]]*\] |Failed to process the request\(s\) for model "
    r"(?:instance )?'[^']*', message: | NOTE: Setting a non-zero max_batch_size.*",
)
_STUB = re.compile(r"Stub process '([^']+?)(?:_\d+)+' is not healthy")
_INSTANCE = re.compile(r"Failed to process the request\(s\) for model (?:instance )?'([^']+?)_\d+'")
UNREADABLE = "its answer cannot be read"


@dataclass(frozen=True, slots=True)
class Reason:
    """`model` is the one at fault, empty where it is that which was asked."""

    code: str
    message: str
    hint: str
    at: Place = ()
    model: str = ""


def find_reason(model: Model, text: str) -> Reason | None:
    """None where the values that were sent may be to blame."""
    for pattern, explain in REASONS.items():
        if match := pattern.search(text):
            return explain(model, match)
    return None


def short(text: str) -> str:
    """The text without what Triton puts around it."""
    return _NOISE.sub("", plain(text)).strip() or "without a word"


def dead_process(text: str) -> str | None:
    """The model whose process has died, by the text of a request that failed for it."""
    match = _STUB.search(text)
    return match[1] if match else None


def failing_step(model: Model, text: str) -> str:
    """The step whose code failed, empty where the text does not say."""
    match = _INSTANCE.search(text)
    return match[1] if match and model.step(match[1]) else ""


def _missing_input(model: Model, match: re.Match[str]) -> Reason:
    called = match["model"]
    names = re.findall(r"'([^']+)'", match["names"])
    step = model.step(called)
    if step is None:
        message = f"it asks `{called}` without {_listed(names)}"
        return Reason(ANSWER, message, "send every input that is not optional", model=called)
    tensor = step.inputs.get(names[0], "")
    if (found := model.writer(tensor)) is None:
        message = f"step `{called}` gets no {_listed(names)}"
        return Reason(ANSWER, message, "map every input that is not optional", _place(model, step))
    writer, output = found
    return Reason(
        OUTPUT,
        f"step `{called}` gets no `{names[0]}`: `{writer.model}` does not return its output "
        f"`{output}`",
        f"return `{output}` in every answer of `{writer.model}`",
        _place(model, writer),
        writer.model,
    )


def _shape(model: Model, match: re.Match[str]) -> Reason:
    called, name = match["model"], match["input"]
    message = f"`{called}` takes `{name}` as {match['wanted']} and gets {match['came']}"
    step = model.step(called)
    if step is None:
        return Reason(ANSWER, message, f"send the shape that `{called}` declares", model=called)
    return Reason(
        WILDCARD, f"step {message}", "declare the length that the step takes", _place(model, step)
    )


def _join(model: Model, match: re.Match[str]) -> Reason:
    called = match["model"]
    step = model.step(called)
    return Reason(
        JOIN,
        f"step `{called}` gets `{match['input']}` with another number of rows than its other "
        "inputs",
        "join them in a Python model that knows which rows belong together",
        _place(model, step) if step else (),
    )


def _not_ready(_model: Model, match: re.Match[str]) -> Reason:
    called = match["model"]
    hint = "call a model, and a version, that the repository serves"
    return Reason(ANSWER, f"it calls `{called}`, which is not ready", hint, model=called)


def _decoupled(_model: Model, match: re.Match[str]) -> Reason:
    called = match["model"]
    message = f"it calls `{called}`, which is decoupled, like a model with one answer"
    return Reason(ANSWER, message, "call it with `exec(decoupled=True)`", model=called)


def _tensor(model: Model, match: re.Match[str]) -> Reason | None:
    kind, name, called = match["kind"], match["name"], match["model"]
    if called == model.name:
        return None
    message = f"`{called}` has no {kind} `{name}`"
    return Reason(ANSWER, message, f"call it with the names in its config: {kind}", model=called)


def _deadlock(_model: Model, _match: re.Match[str]) -> Reason:
    message = "a step leaves out an output that the answer needs"
    return Reason(OUTPUT, message, "return every declared output in each answer")


def _unreadable(_model: Model, match: re.Match[str]) -> Reason:
    message = f"the answer does not have the shape that it says: {match['why']}"
    return Reason(OUTPUT, message, "return each declared output once, in its declared shape")


REASONS: Mapping[re.Pattern[str], Callable[[Model, re.Match[str]], Reason | None]] = {
    re.compile(
        r"expected \d+ inputs? but got \d+ inputs? for model '(?P<model>[^']+)'"
        r".*missing required input\(s\) \[(?P<names>[^\]]+)\]"
    ): _missing_input,
    re.compile(
        r"unexpected shape for input '(?P<input>[^']+)' for model '(?P<model>[^']+)'\. "
        r"Expected (?P<wanted>\[[^\]]*\]), got (?P<came>\[[^\]]*\])"
    ): _shape,
    re.compile(
        r"input '(?P<input>[^']+)' batch size does not match other inputs for '(?P<model>[^']+)'"
    ): _join,
    re.compile(r"Model '(?P<model>[^']+)' is not ready"): _not_ready,
    re.compile(r"Model (?P<model>\S+) is using the decoupled"): _decoupled,
    re.compile(
        r"unexpected inference (?P<kind>input|output) '(?P<name>[^']+)' for model "
        r"'(?P<model>[^']+)'"
    ): _tensor,
    re.compile("unexpected deadlock"): _deadlock,
    re.compile(rf"{UNREADABLE}: (?P<why>.*)"): _unreadable,
}


def _place(model: Model, step: Step) -> Place:
    return ("ensemble_scheduling", "step", model.steps.index(step))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
