"""Whether a model takes batches, and whether rows of a batch leave each other alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmctl.diagnostics import Severity
from mmctl.lint.run import BATCH, CHANCE, MATES, NOT_RUN
from mmctl.trials.runcheck.asker import Asker, count_of
from mmctl.trials.runcheck.likeness import LITTLE, Difference, find_change, row_of
from mmctl.trials.runcheck.questions import Asking, Reply
from mmctl.trials.runcheck.reasons import find_reason, short
from mmctl.trials.runcheck.rows import Values, batch_sizes


def ask_batches(asker: Asker, values: Values) -> Asking[None]:
    """Two rows, and as many as the model takes, of values that it takes alone."""
    model = asker.model
    alone = yield from asker.ask(values, [0])
    second = yield from asker.ask(values, [1])
    rows = [0, 1 if second.ok else 0]  # a row that is refused alone says nothing of batches
    replies: dict[int, Reply] = {}
    for count in batch_sizes(model, values):
        replies[count] = yield from asker.ask(values, (rows * count)[:count])
    for count, reply in replies.items():
        if not reply.ok:
            _add_failure(asker, count, reply)
            break
    if (most := max(replies, default=1)) < model.max_batch:
        limit = f"`max_batch_size` is {model.max_batch}"
        message = f"asked with {count_of(most)} at most, and {limit}: more is too much to send"
        asker.add(NOT_RUN, message, severity=Severity.INFO, at=("max_batch_size",))
    batches = {count: reply for count, reply in replies.items() if reply.ok}
    if batches and alone.ok and not model.decoupled:
        singles = [alone, second if second.ok else alone]
        yield from _compare(asker, values, rows, singles, batches)


def _add_failure(asker: Asker, count: int, reply: Reply) -> None:
    what = f"fails with {count} rows and works with 1"
    if (reason := find_reason(asker.model, reply.text)) is not None:
        asker.add_reason(what, reason)
    elif BATCH not in asker.blamed:
        hint = "make the model take any number of rows, or lower `max_batch_size`"
        asker.add(BATCH, f"{what}: {short(reply.text)}", hint, at=("max_batch_size",))


def _compare(
    asker: Asker,
    values: Values,
    rows: Sequence[int],
    singles: Sequence[Reply],
    batches: Mapping[int, Reply],
) -> Asking[None]:
    """Rows together against the same rows alone; only what can be repeated is told."""
    again = yield from asker.ask(values, [0])
    if _differ(asker, again, 0, singles[0]):
        _add_chance(asker)
        return
    found = [
        (change, number, count)
        for count, batch in batches.items()
        for number, single in enumerate(singles)
        if (change := _differ(asker, batch, number, single))
    ]
    if not found:
        return
    change, number, count = max(found, key=lambda entry: entry[0])
    again = yield from asker.ask(values, [rows[number]])
    together = yield from asker.ask(values, (list(rows) * count)[:count])
    if _differ(asker, again, 0, singles[number]):
        _add_chance(asker)
    elif _differ(asker, together, number, singles[number]):
        _add_mates(asker, change)


def _differ(asker: Asker, batch: Reply, number: int, single: Reply) -> Difference | None:
    if not batch.ok or not single.ok:
        return None
    names = [s.name for s in asker.model.signature.outputs if s.name not in asker.faulty]
    return find_change(row_of(batch.answers[0], number), row_of(single.answers[0], 0), names)


def _add_mates(asker: Asker, change: Difference) -> None:
    if {MATES, CHANCE} & asker.blamed:
        return
    little = change.share <= LITTLE
    asker.add(
        MATES,
        f"the other rows of a batch change an answer{' a little' if little else ''}: "
        f"`{change.name}` is {change.text}",
        "compute every row by itself, or write `max_batch_size: 1`",
        Severity.WARNING if little else Severity.ERROR,
        ("max_batch_size",),
    )


def _add_chance(asker: Asker) -> None:
    if CHANCE not in asker.blamed:
        message = "the same request gave different answers: batches cannot be compared"
        asker.add(CHANCE, message, severity=Severity.INFO)
