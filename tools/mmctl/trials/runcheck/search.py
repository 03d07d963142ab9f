"""Finds values that a model takes, and says what its refusals show. Pure.

A question that fails with made-up values shows little by itself: the values may be at fault. So
everything else is asked with values that were taken once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmctl.client.requests import readable
from mmctl.client.samples import compare
from mmctl.diagnostics import Severity
from mmctl.inference import InferResponse
from mmctl.lint.run import ANSWER, BATCH, NOT_RUN, WILDCARD
from mmctl.trials.runcheck.asker import Asker
from mmctl.trials.runcheck.model import Model
from mmctl.trials.runcheck.questions import Asking, Reply
from mmctl.trials.runcheck.reasons import failing_step, find_reason, short
from mmctl.trials.runcheck.rows import Values, batch_sizes, made_up


def find_values(asker: Asker, own: Sequence[Values]) -> Asking[Values | None]:
    """Values of the user where the model takes them, else made-up ones; None where it takes none,
    which is then said.
    """
    taken = yield from _own(asker, own)
    if taken is not None:
        return taken
    values, refused = yield from _made_up(asker, more=False)
    if values is not None:
        return values
    if refused is None:
        message = "not asked: the smallest request would be very large"
        asker.add(NOT_RUN, message, _give(asker.model), Severity.INFO)
        return None
    if (yield from _needs_several_rows(asker, refused)):
        return None
    values, _ = yield from _made_up(asker, more=True)
    if values is None and not own and not (yield from _needs_no_optional(asker)):
        _add_refusal(asker, refused)
    return values


def optional_inputs(model: Model) -> list[str]:
    """Empty where nothing would be left to send without them."""
    inputs = model.signature.inputs
    if all(spec.optional for spec in inputs):
        return []
    return [spec.name for spec in inputs if spec.optional]


def _own(asker: Asker, own: Sequence[Values]) -> Asking[Values | None]:
    taken: list[Values] = []
    for values in own:
        reply = yield from asker.ask(values, [0])
        if reply.ok:
            taken.append(values)
            yield from _compare(asker, values)
        else:
            asker.add_failure(f"refuses {values.label}", reply)
    return taken[0] if taken else None


def _compare(asker: Asker, values: Values) -> Asking[None]:
    """A whole sample, with what it says of the answer."""
    if values.sample is None or not values.sample.expect:
        return
    rows = range(max(1, min(values.sample.batch, asker.model.max_batch)))
    reply = yield from asker.ask(values, list(rows))
    for outputs in reply.answers[:1]:
        told = readable(InferResponse(outputs)).outputs
        for difference in compare(told, values.sample.expect):
            asker.add(ANSWER, f"{values.label}: {difference}", "correct the model or `expect`")


def _made_up(asker: Asker, *, more: bool) -> Asking[tuple[Values | None, Reply | None]]:
    """The first values that were taken, and the first refusal. Once some are taken, other lengths
    of free axes are asked with the same kind of values.
    """
    values: Values | None = None
    refused: Reply | None = None
    lengths: dict[int, Reply] = {}
    for group in made_up(asker.model, more=more):
        if values is None:
            values, reply = yield from _first_taken(asker, group)
        else:
            same = next(other for other in group if other.style is values.style)
            reply = yield from asker.ask(same, [0])
        if not reply.ok:
            refused = refused or reply
        if group[0].size is not None:
            lengths[group[0].size] = reply
        if more and values is not None:
            break
    if not more:
        _add_lengths(asker, lengths)
    return values, refused


def _first_taken(asker: Asker, group: Sequence[Values]) -> Asking[tuple[Values | None, Reply]]:
    """Each kind of values is asked with, for what it brings to light; the first taken counts."""
    replies = []
    for values in group:
        replies.append((values, (yield from asker.ask(values, [0]))))
    taken = [(values, reply) for values, reply in replies if reply.ok]
    return taken[0] if taken else (None, replies[0][1])


def _needs_several_rows(asker: Asker, alone: Reply) -> Asking[bool]:
    """Whether a model that takes no single row takes several."""
    model = asker.model
    if model.max_batch < 2 or model.sequences:
        return False
    values = next(iter(made_up(model)))[0]
    for count in batch_sizes(model, values):
        if (yield from asker.ask(values, [0] * count)).ok:
            what = f"fails with 1 row and works with {count}: {short(alone.text)}"
            hint = "make the model take any number of rows"
            asker.add(BATCH, what, hint, at=("max_batch_size",))
            return True
    return False


def _needs_no_optional(asker: Asker) -> Asking[bool]:
    """Whether a model takes made-up values once its optional inputs are left out."""
    optional = optional_inputs(asker.model)
    for group in made_up(asker.model) if optional else ():
        for values in group:
            if (yield from asker.ask(values, [0], skip=optional)).ok:
                told = ", ".join(f"`{name}`" for name in optional)
                message = f"takes no generated values for {told}; asked without them"
                asker.add(ANSWER, message, _give(asker.model), Severity.INFO)
                return True
    return False


def _add_refusal(asker: Asker, reply: Reply) -> None:
    """No made-up values were taken."""
    if (reason := find_reason(asker.model, reply.text)) is not None:
        asker.add_reason("no request works", reason)
        return
    step = failing_step(asker.model, reply.text)
    where = f" in step `{step}`" if step else ""
    message = f"generated values are refused{where}: {short(reply.text)}"
    asker.add(ANSWER, message, _give(asker.model), Severity.INFO)


def _give(model: Model) -> str:
    return f"give values that it takes with `--input {model.name}=FILE.json`"


def _add_lengths(asker: Asker, lengths: Mapping[int, Reply]) -> None:
    """Axes that are declared free and are not."""
    works = [size for size, reply in lengths.items() if reply.ok]
    fails = [size for size, reply in lengths.items() if not reply.ok]
    if not works or not fails:
        return
    text = lengths[fails[0]].text
    what = f"free axes of length {_numbers(fails)} fail, {_numbers(works)} work"
    # What a single model takes may depend on its values; between steps it is in the configs.
    reason = find_reason(asker.model, text) if asker.model.steps else None
    if reason is None:
        hint = "declare the lengths that it takes in `dims`"
        message = f"{what}: {short(text)}"
        asker.add(WILDCARD, message, hint, Severity.INFO, ("input",))
    else:
        message = f"{what}: {reason.message}"
        asker.add(reason.code, message, reason.hint, Severity.WARNING, reason.at)


def _numbers(numbers: Sequence[int]) -> str:
    *most, last = map(str, sorted(numbers))
    return f"{', '.join(most)} and {last}" if most else last
