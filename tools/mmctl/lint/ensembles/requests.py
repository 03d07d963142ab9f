"""What Triton lets through although requests then fail or are answered wrongly: E015, E017, E019.

What Triton makes of a tensor between a model that batches and one that does not is in
`ReshapeTensorDims` of its core: it puts an axis of 1 in front, or takes one away, where the shapes
then agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mmctl.diagnostics import Rule, Severity
from mmctl.lint.ensembles.calls import Mention, fit, mention_at, mentions_of
from mmctl.lint.ensembles.graph import Wiring, step_at, wiring_of
from mmctl.lint.ensembles.tensors import shapes
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.lint.signatures import agree

# ---------------------------------------------------------------- rows

REQUEST = "the rows of the request"
Count = str | int | None
"""How many rows there are: REQUEST, as many as the step that is named gives, a number, or None
where nobody knows.
"""


@dataclass(frozen=True)
class Rows:
    """The rows of the tensors of an ensemble whose max_batch_size is `largest`."""

    largest: int
    mentions: Mapping[str, list[Mention]]
    made: dict[int, Count] = field(default_factory=dict)
    """What a batching step is given, and so gives, by its number."""

    def writer(self, tensor: str) -> Mention | None:
        return next((m for m in self.mentions.get(tensor, ()) if m.gives), None)

    @property
    def of_request(self) -> Count:
        return 1 if self.largest == 1 else REQUEST

    def given(self, writer: Mention) -> Count:
        """The rows of a tensor with a batch axis."""
        return self.of_request if writer.step is None else self.made.get(writer.step.number)

    def seen(self, reader: Mention, tensor: str) -> Count:
        """The rows of a tensor for an end that batches."""
        writer = self.writer(tensor)
        if writer is None or writer.dims is None or reader.dims is None or not reader.batches:
            return None
        if writer.batches:
            return self.given(writer)
        if agree(writer.dims, reader.dims):
            return 1
        if not agree(writer.dims, reader.full_dims):
            return None
        if writer.dims[0] != -1:
            return writer.dims[0]
        return str(writer.step) if writer.step else self.of_request


def _rows_of(model: Model, wiring: Wiring, repository: Repository) -> Rows:
    rows = Rows(model.message.max_batch_size, mentions_of(model, repository))
    readers = _readers(rows.mentions)
    for step in wiring.order:
        counts = {
            rows.seen(reader, tensor)
            for tensor in step.inputs.values()
            for reader in readers.get((step.number, tensor), ())
        }
        ours = rows.of_request in counts and None not in counts
        rows.made[step.number] = rows.of_request if ours else _only(counts)
    return rows


def _only(counts: set[Count]) -> Count:
    return next(iter(counts)) if len(counts) == 1 else None


def _readers(mentions: Mapping[str, list[Mention]]) -> Mapping[tuple[int, str], list[Mention]]:
    found: dict[tuple[int, str], list[Mention]] = {}
    for tensor, ends in mentions.items():
        for end in ends:
            if end.step is not None and not end.gives:
                found.setdefault((end.step.number, tensor), []).append(end)
    return found


def _shown(count: Count) -> str:
    if isinstance(count, int):
        return f"{count} row{'s' * (count != 1)}"
    return str(count) if count == REQUEST else f"as many rows as {count} gives"


# ---------------------------------------------------------------- E015


def _find_row_mixes(model: Model, repository: Repository) -> Iterator[Mistake]:
    """Where tensors with different numbers of rows meet: in a step, or in the answer."""
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    rows = _rows_of(model, wiring, repository)
    readers = _readers(rows.mentions)
    for step in wiring.order:
        seen = [
            (rows.seen(reader, tensor), tensor, reader)
            for tensor in step.inputs.values()
            for reader in readers.get((step.number, tensor), ())
        ]
        seen.sort(key=lambda found: found[0] != rows.of_request)
        # Two steps that are both free to choose may well choose the same.
        held = next((s for s in seen if isinstance(s[0], int) or s[0] == REQUEST), None)
        odd = next((s for s in seen if held and s[0] not in (None, held[0])), None)
        if held and odd:
            count, tensor, reader = odd
            yield Mistake(
                step_at(model, step, "input_map", reader.name),
                f"{step} joins `{held[1]}`, which has {_shown(held[0])}, with `{tensor}`, which "
                f"has {_shown(count)}: a request fails where the two differ",
                "join them in a BLS model, or in the step that makes the rows",
            )
    for tensor, ends in rows.mentions.items() if rows.largest > 0 else ():
        for end in ends:
            count = rows.seen(end, tensor) if end.step is None and not end.gives else None
            if isinstance(count, int) and count != rows.of_request:
                yield Mistake(
                    mention_at(model, tensor, end),
                    f"output `{tensor}` has {_shown(count)}, however many the request has",
                    "let the step that gives it keep the batch as its first axis: dims [ -1, ... ]",
                )


ROW_MIX = Check(
    Rule(
        "E015",
        "tensors with different numbers of rows joined",
        "A model with max_batch_size 0 sees the batch as an axis like others and may give another "
        "number of rows (a detector gives one for each thing that it finds). A step that batches "
        "takes such a tensor only with others of as many rows.",
        Severity.WARNING,
        wrong='input_map { key: "crop" value: "crops" }  # from a model without batches\n'
        'input_map { key: "image" value: "image" }  # one row for each of the request',
        right="a BLS model that repeats `image` for each crop",
    ),
    _find_row_mixes,
)

# ---------------------------------------------------------------- E017


def _find_open_shapes(model: Model, repository: Repository) -> Iterator[Mistake]:
    if not model.is_ensemble:
        return
    rows = _rows_of(model, wiring_of(model), repository)
    for tensor, ends in rows.mentions.items():
        shaped = [end for end in ends if end.dims is not None]
        writer = next((end for end in shaped if end.gives), None)
        if writer is None or not all(fit(shaped[0], end) for end in shaped):
            continue  # without a writer there is nothing to say, and what does not fit is E007
        for reader in shaped:
            doubt = None if reader.gives else _doubt(writer, reader, rows)
            if doubt:
                why, hint, severity = doubt
                told = f"tensor `{tensor}` is {shapes(writer, reader)}: {why}"
                yield Mistake(mention_at(model, tensor, reader), told, hint, severity)


def _doubt(writer: Mention, reader: Mention, rows: Rows) -> tuple[str, str, Severity] | None:
    """Why a tensor that Triton lets through may not fit, the worst reason alone."""
    given, taken = writer.dims or (), reader.dims or ()
    same = agree(given, taken)
    if not fit(writer, reader):
        return "each request fails", "make the two dims one", Severity.WARNING
    if reader.step and writer.batches and not reader.batches:
        wanted = 1 if same else taken[0]
        if wanted != -1 and rows.given(writer) not in (None, wanted):
            hint = "give the model that takes it dims [ -1, ... ], or let it batch"
            return f"only a batch of {wanted} fits", hint, Severity.WARNING
    most = reader.max_batch
    if reader.step and reader.batches and not writer.batches and not same and given[0] > most:
        why = f"that is a batch of {given[0]}, and it takes at most {most}"
        return why, "raise its max_batch_size", Severity.WARNING
    both = zip(reversed(given), reversed(taken), strict=False)
    if any(size == -1 and fixed != -1 for size, fixed in both):
        own = writer.step is None or reader.step is None
        why, hint = "only a request tells whether it fits", "write the real size at both ends"
        return why, hint, Severity.INFO if own else Severity.WARNING
    return None


OPEN_SHAPE = Check(
    Rule(
        "E017",
        "shape that only a request can tell",
        "-1 fits any size while the ensemble loads. When a request comes, a step refuses what is "
        "not of the size that its model declares: Triton then answers `unexpected shape for "
        "input`, and where another step runs beside it, Triton 24.10 may die. A batch also passes "
        "to a model that does not batch, if only as long as it is 1.",
        Severity.WARNING,
        wrong="a: output y dims [ -1 ], b: input x dims [ 8 ], joined",
        right="a: output y dims [ 8 ], b: input x dims [ 8 ], joined",
    ),
    _find_open_shapes,
)

# ---------------------------------------------------------------- E019


def _find_deadlocks(model: Model, _repository: Repository) -> Iterator[Mistake]:
    """Outputs that Triton cannot answer alone; requests for more of them may fail as well."""
    if not model.is_ensemble:
        return
    wiring = wiring_of(model)
    if len(wiring.outputs) < 2 or not wiring.sound:
        return
    dropped = {output: wiring.wrongly_dropped(output) for output in wiring.outputs}
    alone = [output for output, steps in dropped.items() if steps]
    if not alone:
        return
    hint = "ask for all outputs of the ensemble, or for none by name, and drop what is too much"
    between = _outputs_between(wiring, alone)
    for tensor in between:
        yield Mistake(
            model.at("output", wiring.outputs.index(tensor)),
            f"output `{tensor}` is also read by {wiring.readers[tensor][0].step}: a request for "
            "only some of the outputs fails",
            f"{hint}; or give a copy of `{tensor}` by a step of its own",
        )
    if not between:
        lost = dropped[alone[0]][0]
        yield Mistake(
            model.at("output", wiring.outputs.index(alone[0])),
            f"a request for output `{alone[0]}` alone fails: Triton drops {lost}, which it needs, "
            "with those that it does not need",
            hint,
        )


def _outputs_between(wiring: Wiring, alone: list[str]) -> list[str]:
    """The outputs on the way to one that cannot be asked for alone."""
    needed = {
        tensor
        for output in alone
        for tensor in (
            output,
            *(name for step in wiring.before(output) for name in step.inputs.values()),
        )
    }
    return [name for name in wiring.outputs if name in needed and name in wiring.readers]


DEADLOCK = Check(
    Rule(
        "E019",
        "outputs that cannot be asked for one by one",
        "A request may name the outputs that it wants. Triton then leaves out the steps of the "
        "others, and leaves out too much where an output is also read by a step, or where a step "
        "that it leaves out reads an input of the ensemble: the request fails with `unexpected "
        "deadlock, at least one output is not set`. A request for all outputs works.",
        Severity.WARNING,
        wrong='output_map { key: "h" value: "mid" }  # `mid` is an output of the ensemble\n'
        'input_map { key: "h" value: "mid" }',
        right="client.infer(...)  # with all outputs",
    ),
    _find_deadlocks,
)


REQUEST_CHECKS: tuple[Check, ...] = (ROW_MIX, OPEN_SHAPE, DEADLOCK)
