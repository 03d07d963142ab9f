"""Which questions a model is asked, one depending on the answers before. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mmctl.diagnostics import Severity
from mmctl.lint.run import ANSWER, NOT_RUN, SUBSET
from mmctl.trials.runcheck.asker import Asker, Spoilt
from mmctl.trials.runcheck.batches import ask_batches
from mmctl.trials.runcheck.questions import Asking
from mmctl.trials.runcheck.reasons import short
from mmctl.trials.runcheck.rows import Values
from mmctl.trials.runcheck.search import find_values, optional_inputs


def examine(asker: Asker, own: Sequence[Values] = ()) -> Asking[None]:
    """Everything there is to ask of one model; `own` are values of the user. Ends early when the
    model spoils the server.
    """
    try:
        yield from _examine(asker, own)
    except Spoilt as spoilt:
        asker.add_spoilt(spoilt)


def _examine(asker: Asker, own: Sequence[Values]) -> Asking[None]:
    model = asker.model
    if name := model.unsendable:
        message = f"not asked: `{name}` is BF16, which numpy does not have"
        asker.add(NOT_RUN, message, severity=Severity.INFO)
        return
    values = yield from find_values(asker, own)
    if values is None:
        return
    if model.sequences:
        yield from _ask_sequence(asker, values)
        return
    if model.max_batch > 1:
        yield from ask_batches(asker, values)
    yield from _ask_without_optional(asker, values)
    yield from _ask_single_outputs(asker, values)


def _ask_sequence(asker: Asker, values: Values) -> Asking[None]:
    """The values were taken as a sequence of one request; now one of three."""
    for number, place in enumerate(("first", "middle", "last")):
        reply = yield from asker.ask(values, [number], place=place)
        if not reply.ok:
            asker.add_failure(f"the {place} request of a sequence fails", reply)
            return


def _ask_without_optional(asker: Asker, values: Values) -> Asking[None]:
    sent = values.row(0)
    optional = [name for name in optional_inputs(asker.model) if name in sent]
    if not optional:
        return
    reply = yield from asker.ask(values, [0], skip=optional)
    if not reply.ok:
        told = ", ".join(f"`{name}`" for name in optional)
        asker.add(
            ANSWER,
            f"a request without {told} fails, though optional: {short(reply.text)}",
            "take a default where the input is not sent, or drop `optional`",
            Severity.WARNING,
            ("input", optional[0]),
        )


def _ask_single_outputs(asker: Asker, values: Values) -> Asking[None]:
    """An ensemble is asked for each of its outputs alone."""
    names = [spec.name for spec in asker.model.signature.outputs]
    if not asker.model.steps or len(names) < 2 or asker.faulty:
        return
    for name in names:
        reply = yield from asker.ask(values, [0], outputs=(name,))
        if not reply.ok or not any(name in outputs for outputs in reply.answers):
            asker.add(
                SUBSET,
                f"a request for `{name}` alone fails, one for all outputs works: "
                f"{short(reply.text) if reply.text else 'it is not in the answer'}",
                "ask for all outputs, or let a step of its own copy an output that a step reads",
                Severity.WARNING,
                ("output", name),
            )
            return
